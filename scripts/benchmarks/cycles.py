"""Modelled cycles of our modules and of other runtimes' models, counted by the picost tool.

Cycles are exact aarch64 instruction counts under qemu-user, put through llvm-mca's pipeline model
of the core: no caches, no branch misses. They compare programs; they are not times. Everything
slow (converting, compiling, counting) is kept under a digest of what it depends on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICOST = ROOT.parent / "shared" / "tools" / "picost"
CORES = {"rpi3": "cortex-a53", "rpi4": "cortex-a72", "rpi5": "cortex-a76"}
PEERS = {
    "fp32": ("ncnn", "tflite", "onnx"),
    "int8": ("tflite-int8", "onnx-int8"),
    "fp16": ("ncnn",),
}
PEER_NAMES = {"ncnn": "ncnn", "tflite": "LiteRT", "onnx": "ORT"}
# The versions that the runtimes in the sysroot read; converters only, none of them runs on a Pi.
PEER_PACKAGES = (
    "onnx==1.23.*",
    "onnxscript==0.7.*",
    "onnxruntime==1.32.*",
    "pnnx==20261020",
    "litert-torch==0.10.*",
    "ai-edge-quantizer==0.10.*",
)
_COMPARE = """
import sys, numpy as np, iree.runtime as rt
config = rt.Config("local-sync")
module = rt.VmModule.mmap(config.vm_instance, sys.argv[1])
context = rt.SystemContext(config=config); context.add_vm_module(module)
bound = context.modules[module.name]
name = next(f for f in module.function_names if not f.startswith("__") and not f.endswith("$async"))
count = int(sys.argv[2])
got = bound[name](*[np.load(p) for p in sys.argv[4:4 + count]])
got = got if isinstance(got, (tuple, list)) else [got]
worst = 0.0
for value, path in zip(got, sys.argv[4 + count:]):
    want = np.load(path).astype(np.float64)
    value = np.asarray(value.to_host()).astype(np.float64)
    worst = max(worst, float(np.abs(value - want).max() / max(1e-30, np.abs(want).max())))
print(worst)
"""


@dataclass(frozen=True, kw_only=True)
class Model:
    """An exported program on disk, the input it is timed with, and calibration data for int8."""

    name: str
    program: Path
    inputs: tuple[Path, ...]
    calibration: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Modelled cost of one inference, in millions; ``error`` as for `Workshop.ours`."""

    cycles_millions: float
    instructions_millions: float
    error: float | None = None


class Workshop:
    """Where things are built and counted: sysroot, converters and cache in a folder."""

    def __init__(self, folder: Path, *, sysroot: Path | None = None, peers: Path | None = None):
        self.folder = folder.resolve()
        self.sysroot = (sysroot or folder / "sysroot").resolve()
        self.peers_python = peers.absolute() if peers else folder.resolve() / "peers/bin/python"
        self._cache = self.folder / "cache"
        self._cache.mkdir(parents=True, exist_ok=True)
        self._tool = digest(
            [(PICOST / "picost.py").read_bytes(), (PICOST / "blockcount.c").read_bytes()]
        )
        self._sources = digest(_source_files())

    def prepare(self, *, peers: bool = True) -> None:
        """Makes what is missing: the sysroot with the peers' runtimes, and their converters."""
        if not (self.sysroot / "usr/bin/python3.11").exists():
            say("sysroot (Debian arm64, IREE's runtime, the peers)")
            _run(["bash", str(PICOST / "sysroot.sh"), str(self.sysroot), "--peers"])
        if peers:
            self.prepare_converters()

    def prepare_converters(self) -> None:
        """Makes the environment that converts models for the peers."""
        if not self.peers_python.exists():
            say("environment for the peers' converters")
            _run([sys.executable, "-m", "venv", str(self.peers_python.parents[1])])
            # PyTorch is taken from the environment that runs this.
            import torch

            here = Path(torch.__file__).parents[1]
            site = next(self.peers_python.parents[1].glob("lib/python*/site-packages"))
            (site / "pytorch.pth").write_text(f"{here}\n")
            _run([str(self.peers_python), "-m", "pip", "install", "-q", *PEER_PACKAGES])

    def ours(self, model: Model, target: str, precision: str, *options: str) -> Cost:
        """Compiles a model by edgectl's command and counts it.

        The output under qemu is compared with the golden output in the bundle; ``error`` is the
        largest difference relative to the largest output, over all outputs.
        """
        arguments = ["--target", target, "--trust-model", *options]
        for path in model.inputs:
            arguments += ["--input", str(path)]
        if precision != "fp32":
            arguments += ["--quantize", precision]
        data: list[bytes | str] = [model.program.read_bytes(), *map(Path.read_bytes, model.inputs)]
        if precision == "int8":
            if model.calibration is None:
                raise SystemExit(f"{model.name} has no calibration data")
            arguments += ["--calibration", str(model.calibration)]
            data.append(model.calibration.read_bytes())
        key = digest([*data, *(a for a in arguments if "/" not in a), self._sources])
        bundle = self._cache / f"{key}.edgectl"
        if not bundle.exists():
            say(f"edgectl compile {model.name} {target} {precision}")
            command = [
                str(Path(sys.executable).with_name("edgectl")),
                "compile",
                str(model.program),
                *arguments,
            ]
            _run([*command, "-q", "-o", str(bundle)])
        folder = self._cache / f"{key}.d"
        with zipfile.ZipFile(bundle) as archive:
            archive.extractall(folder)
        module, golden = folder / "module.vmfb", folder / "golden/0"
        inputs = sorted(golden.glob("input_*.npy"), key=_number)
        cost = self._count("vmfb", CORES[target], [module, *inputs])
        outputs = sorted(golden.glob("output_*.npy"), key=_number)
        error = self._error(CORES[target], module, inputs, outputs)
        return Cost(
            cycles_millions=cost.cycles_millions,
            instructions_millions=cost.instructions_millions,
            error=error,
        )

    def peer(self, model: Model, target: str, kind: str) -> Cost | str:
        """Converts a model for a peer and counts it, or says why that failed."""
        key = digest(
            [
                model.program.read_bytes(),
                model.calibration.read_bytes()
                if kind.endswith("-int8") and model.calibration
                else "",
                kind,
                (Path(__file__).parent / "peer_models.py").read_bytes(),
                *PEER_PACKAGES,
            ]
        )
        made, failed = self._cache / f"{key}.{kind}", self._cache / f"{key}.failed"
        written = made.with_name(made.name + ".param") if kind == "ncnn" else made
        if failed.exists():
            return failed.read_text()
        if not written.exists():
            say(f"{kind} of {model.name}")
            command = [str(self.peers_python), str(Path(__file__).parent / "peer_models.py"), kind]
            command += [str(model.program), str(made)]
            if kind.endswith("-int8"):
                command.append(str(model.calibration))
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode or not written.exists():
                reason = (run.stderr.strip().splitlines() or ["no reason given"])[-1][:160]
                failed.write_text(f"does not convert: {reason}")
                return failed.read_text()
        try:
            return self._count(kind.split("-")[0], CORES[target], [made, *model.inputs])
        except CountError as error:
            return str(error)

    def _count(self, kind: str, cpu: str, arguments: Sequence[Path]) -> Cost:
        stems = [p.with_name(p.name + s) for p in arguments[:1] for s in (".param", ".bin")]
        content = stems if kind == "ncnn" else list(arguments[:1])
        data = [p.read_bytes() for p in (*content, *arguments[1:])]
        kept = self._cache / (digest([self._tool, kind, cpu, str(self.sysroot), *data]) + ".json")
        if not kept.exists():
            say(f"count {arguments[0].name[:12]} on {cpu}")
            command = [sys.executable, str(PICOST / "picost.py"), "--cpu", cpu, "--sysroot"]
            command += [str(self.sysroot), "--json", kind, *map(str, arguments)]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode:
                tail = (run.stderr.strip().splitlines() or ["no reason given"])[-1]
                raise CountError(f"does not run: {tail[:160]}")
            kept.write_text(run.stdout)
        found = json.loads(kept.read_text())
        return Cost(
            cycles_millions=found["cycles"] / 1e6, instructions_millions=found["instructions"] / 1e6
        )

    def _error(
        self, cpu: str, module: Path, inputs: Sequence[Path], outputs: Sequence[Path]
    ) -> float:
        environment = dict(
            os.environ,
            PYTHONHOME=f"{self.sysroot}/usr",
            PYTHONPATH=f"{self.sysroot}/opt/site-packages",
        )
        python = f"{self.sysroot}/usr/bin/python3.11"
        command = ["qemu-aarch64", "-cpu", cpu, "-L", str(self.sysroot), python, "-c", _COMPARE]
        command += [str(module), str(len(inputs)), "-", *map(str, inputs), *map(str, outputs)]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if run.returncode:
            raise SystemExit(f"the module does not run on {cpu}: {run.stderr[-400:]}")
        return float(run.stdout)


class CountError(Exception):
    """A program did not run under the counter."""


def digest(parts: Iterable[bytes | str]) -> str:
    """A name for some content."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()[:24]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that every command here has."""
    parser.add_argument("--folder", type=Path, default=ROOT / "build/benchmarks")
    parser.add_argument(
        "--sysroot", type=Path, help="made by sysroot.sh --peers (default: in --folder)"
    )
    parser.add_argument("--peers-python", type=Path, help="Python with the converters")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--targets", default="rpi3,rpi4,rpi5")
    parser.add_argument("--precisions", default="fp32,int8,fp16")
    parser.add_argument("--json", type=Path, help="write the rows here too")


def workshop(options: argparse.Namespace) -> Workshop:
    """The workshop that the options name, prepared."""
    if not (PICOST / "picost.py").is_file():
        raise SystemExit(f"{PICOST} is absent: the cycles are counted by the picost tool there")
    made = Workshop(options.folder, sysroot=options.sysroot, peers=options.peers_python)
    made.prepare(peers=not options.no_peers)
    return made


def pairs(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Targets and precisions to run; fp16 arithmetic exists on the Cortex-A76 only."""
    return [
        (target, precision)
        for precision in options.precisions.split(",")
        for target in options.targets.split(",")
        if precision != "fp16" or target == "rpi5"
    ]


def say(text: str) -> None:
    """Progress, on standard error."""
    print(f"  [{text}]", file=sys.stderr, flush=True)


def _number(path: Path) -> int:
    return int(path.stem.rsplit("_", 1)[1])


def _source_files() -> list[bytes]:
    found: list[bytes] = []
    for folder in ("host/edgectl", "toolchains/edgectl_toolchains"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".c", ".h", ".toml"):
                found += [path.read_bytes()]
    return found


def _run(command: Sequence[str]) -> None:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(
            f"{' '.join(command[:6])} ... failed:\n{run.stdout[-800:]}{run.stderr[-2000:]}"
        )
