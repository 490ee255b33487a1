"""What a user may bring instead of a model: one clear error each, and the right exit code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from edgectl.cli.main import main
from support import small_models

MODELS = small_models.__file__


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    model, inputs = small_models.digits()
    torch.export.save(torch.export.export(model, inputs), folder / "model.pt2")
    torch.save(model.state_dict(), folder / "weights.pt")
    torch.save(model, folder / "module.pt")
    (folder / "text.pt").write_text("hello there, no model")
    whole = (folder / "model.pt2").read_bytes()
    (folder / "cut.pt2").write_bytes(whole[: len(whole) // 2])
    np.save(folder / "good.npy", np.zeros((1, 1, 28, 28), np.float32))
    np.save(folder / "shape.npy", np.zeros((1, 3, 28, 28), np.float32))
    np.save(folder / "dtype.npy", np.zeros((1, 1, 28, 28), np.float64))
    return folder


@pytest.fixture
def run(folder, tmp_path, monkeypatch, capsys):
    """Runs a command in the models' folder; (exit code, standard error)."""
    monkeypatch.setenv("EDGECTL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("EDGECTL_DEVICE", raising=False)
    monkeypatch.chdir(folder)

    def run(*words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as end:
            main(list(words))
        return int(end.value.code or 0), capsys.readouterr().err

    return run


CASES = {
    "no such file": (["absent.pt"], 2, ["There is no file absent.pt", "ls"]),
    "not a model": (["text.pt"], 2, ["is not a model that edgectl knows", "torch.export.save"]),
    "cut short": (["cut.pt2", "--trust-model"], 2, ["cut.pt2", "cut off or damaged", "sha256"]),
    "weights alone": (["weights.pt"], 2, ["holds only weights", "--arch"]),
    "nobody trusts it": (["model.pt2"], 3, ["can run any code", "--trust-model"]),
    "nobody trusts the pickle": (["module.pt"], 3, ["can run any code", "--trust-model"]),
    "too many inputs": (
        ["model.pt2", "--trust-model", "--input", "good.npy", "--input", "good.npy"],
        2,
        ["2 inputs were given and the model takes 1: image"],
    ),
    "wrong shape": (
        ["model.pt2", "--trust-model", "--input", "shape.npy"],
        2,
        ["'image' is 1x3x28x28", "the model takes 1x1x28x28"],
    ),
    "wrong dtype": (
        ["model.pt2", "--trust-model", "--input", "dtype.npy"],
        2,
        ["'image' is float64", "the model takes float32", 'astype("float32")'],
    ),
    "absent input": (["model.pt2", "--input", "absent.npy"], 2, ["absent.npy does not exist"]),
    "spec without dtype": (
        ["model.pt2", "--trust-model", "--input-spec", "1x1x28"],
        2,
        ["'1x1x28' cannot be read", "1x3x224x224xf32"],
    ),
    "control flow": (
        [f"{MODELS}:branching"],
        4,
        ["decides by the values in a tensor", "if x.sum() > 0:", "torch.where"],
    ),
    "absent factory": ([f"{MODELS}:absent"], 2, ["has no function 'absent'", "digits"]),
    "unknown target": (
        ["model.pt2", "--trust-model", "--target", "rpi9"],
        2,
        ["no target 'rpi9'", "rpi4", "edgectl targets"],
    ),
    "wrong compiler flag": (
        [f"{MODELS}:digits", "--flag", "--no-such-flag"],
        5,
        ["--no-such-flag", "log"],
    ),
}


@pytest.mark.parametrize(("words", "exit_code", "parts"), CASES.values(), ids=CASES)
def test_each_is_told_once_and_clearly(run, folder, words, exit_code, parts):
    code, error = run("compile", *words, "-o", "made.edgectl")
    assert code == exit_code, error
    message = error[error.index("error: ") :]
    for part in parts:
        assert part in message
    assert "Traceback" not in error
    assert error.count("error:") == 1
    assert not Path("made.edgectl").exists(), "nothing half made may stay"


def test_the_module_pickled_elsewhere_says_what_it_lacks(run, folder, tmp_path, monkeypatch):
    # The class is importable in this process; a child elsewhere has only the file.
    text = (folder / "module.pt").read_bytes()
    (tmp_path / "moved.pt").write_bytes(
        text.replace(b"support.small_models", b"sapport.small_models")
    )
    code, error = run("compile", str(tmp_path / "moved.pt"), "--trust-model")
    assert code == 2
    assert "needs a class that is not here" in error or "cannot be read" in error


def test_without_a_device_the_error_names_both_ways_on(run):
    code, error = run("deploy", "model.pt2", "--trust-model")
    assert code == 3
    assert "edgectl device add NAME" in error
    assert "--device emulator" in error
