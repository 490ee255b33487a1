"""Versioned records that travel between host and device: the one module both sides import.

Only the standard library is imported here, so that the host can read a report and the device a
manifest without anything else installed. Every document has a ``schema_version``; a reader
refuses a version it does not know (`ContractError`) and ignores fields that it does not know,
so that a newer peer may add fields but not change them.

Shapes are in elements, row-major; ``None`` in a shape is a dimension that may vary. Dtypes are
NumPy's names (``float32``, ``int64``, ``uint8``, ``bool``).
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

__all__ = [
    "MANIFEST_VERSION",
    "REPORT_VERSION",
    "ContractError",
    "EntryPoint",
    "GoldenCall",
    "GoldenLimits",
    "LatencySummary",
    "LoadPlan",
    "LoadResult",
    "Manifest",
    "OutputBinding",
    "OutputComparison",
    "RunReport",
    "RunRequest",
    "StateSpec",
    "SystemSample",
    "TensorSpec",
    "TracePoint",
    "from_document",
    "to_document",
]

MANIFEST_VERSION = 1
REPORT_VERSION = 1


class ContractError(ValueError):
    """A document is of another version, lacks a field, or holds a value of another type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Name, shape and dtype of one tensor at the boundary of the model."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpec:
    """A tensor that the caller carries from one call to the next.

    Functionalization turns a mutated buffer into an extra argument and an extra result of the
    compiled function; the runner feeds result ``result_index`` of one call into argument
    ``argument_index`` of the next. ``initial`` names the ``.npy`` file with its first value.
    """

    spec: TensorSpec
    argument_index: int
    result_index: int
    initial: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputBinding:
    """Where one output of the model comes from.

    ``result``: result ``index`` of the compiled function. ``input``: the caller's own input
    ``index``, untouched. ``literal``: a Python value (``None``, bool, int, float, str) known at
    compile time.
    """

    name: str
    source: Literal["result", "input", "literal"]
    index: int | None = None
    literal: bool | int | float | str | None = None
    spec: TensorSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPoint:
    """One compiled function: arguments are ``inputs`` in order, then one per state."""

    function: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[OutputBinding, ...]
    states: tuple[StateSpec, ...] = ()
    result_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenCall:
    """Files (``.npy``) with the inputs of one call and what eager PyTorch answered to it.

    ``outputs`` holds one name per tensor output, in the order of `EntryPoint.outputs` without
    the literals. Calls of a stateful model are successive.
    """

    entry_point: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenLimits:
    """How far the device may be from PyTorch before the deployment counts as wrong.

    ``max_relative_error`` is the largest absolute difference divided by the largest absolute
    value of the expected output. ``min_sqnr_db`` is used where rounding differs by design
    (INT8, fp16); ``None`` means that it is not looked at.
    """

    max_relative_error: float | None = 1e-4
    min_sqnr_db: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The bundle's table of contents; ``files`` maps each file's name to its sha256 and size."""

    schema_version: int = MANIFEST_VERSION
    name: str
    target: str
    cpu: str
    cpu_features: tuple[str, ...]
    architecture: str
    iree_version: str
    precision: str
    dialect: str
    module: str
    entry_points: tuple[EntryPoint, ...]
    golden: tuple[GoldenCall, ...]
    golden_limits: GoldenLimits
    files: dict[str, FileEntry]
    provenance: dict[str, Any] = field(default_factory=dict)
    sequence: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """Digest (sha256, hexadecimal) and size of one file of a bundle."""

    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """How the device makes its own load, so that no network lies inside a latency.

    The scenarios are MLPerf Inference's. A query holds ``samples_per_query`` calls, one after the
    other (``multi_stream``); ``offline`` counts samples only; ``server`` issues queries at Poisson
    arrivals of ``target_qps`` drawn with ``seed``, and its latency counts from the arrival. A run
    ends when both minima are reached, or at ``max_seconds``. ``batch`` is how often the input is
    repeated along its leading dimension, which must be one that may vary.
    """

    scenario: Literal["single_stream", "multi_stream", "offline", "server"] = "single_stream"
    min_queries: int = 64
    min_seconds: float = 0.0
    max_seconds: float = 600.0
    samples_per_query: int = 1
    target_qps: float | None = None
    seed: int = 0
    batch: int = 1
    spin_us: int | None = None
    max_warmup_seconds: float = 30.0
    trace_interval_s: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What the host asks the runner to do with an installed release."""

    schema_version: int = REPORT_VERSION
    release: str
    inputs: tuple[str, ...] | None = None
    outputs: str | None = None
    entry_point: int = 0
    warmup_iterations: int = 3
    iterations: int = 20
    min_seconds: float = 0.0
    threads: int | None = None
    cpu_affinity: tuple[int, ...] | None = None
    reset_state: bool = True
    load: LoadPlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputComparison:
    """One output of the device beside the same output of eager PyTorch.

    ``sqnr_db`` is 10 log10(sum(expected^2) / sum(difference^2)), ``None`` when exact;
    ``top1_agreement`` the share of rows (last axis) with the same largest element, ``None``
    for outputs of fewer than two classes.
    """

    name: str
    call: int
    max_absolute_error: float
    max_relative_error: float
    cosine: float | None
    sqnr_db: float | None
    top1_agreement: float | None
    passed: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySummary:
    """Quantiles (linear interpolation between order statistics) over the timed iterations."""

    iterations: int
    mean_ms: float
    min_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemSample:
    """The board at one moment; ``None`` where the board does not tell.

    ``throttle_flags`` are the firmware's ``get_throttled`` bits.
    """

    temperature_celsius: float | None = None
    cpu_frequency_mhz: tuple[float, ...] = ()
    throttle_flags: int | None = None
    governor: str | None = None
    load_1min: float | None = None
    memory_available_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePoint:
    """The board at ``time_s`` after timing began; ``None`` where the board does not tell.

    ``other_load`` is the work of everybody else since the point before, in processors.
    """

    time_s: float
    temperature_celsius: float | None = None
    cpu_frequency_mhz: tuple[float, ...] = ()
    throttle_flags: int | None = None
    other_load: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """What came of a `LoadPlan`.

    ``starts_ms`` is when each query was issued (for ``server``: arrived), since timing began.
    ``stable`` tells whether the warm-up came to rest in its time.
    """

    plan: LoadPlan
    starts_ms: tuple[float, ...]
    duration_s: float
    samples: int
    warmup_ms: tuple[float, ...]
    stable: bool
    complete: bool
    trace: tuple[TracePoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What one run on the device gave. ``latency`` is ``None`` whenever an output was wrong.

    With a `LoadPlan`, ``latencies_ms`` has one value per query (per call for ``offline``), and
    the golden calls were made before and after the timing.
    """

    schema_version: int = REPORT_VERSION
    release: str
    comparisons: tuple[OutputComparison, ...]
    latency: LatencySummary | None
    latencies_ms: tuple[float, ...]
    outputs: dict[str, TensorSpec]
    outputs_file: str | None
    load_ms: float
    peak_rss_bytes: int
    threads: int
    before: SystemSample
    after: SystemSample
    machine: str
    emulated: bool
    runner_version: str
    load: LoadResult | None = None


Record = TypeVar("Record")


def to_document(record: Any) -> dict[str, Any]:
    """The record as plain dicts, lists and scalars, ready for ``json.dumps``."""
    document: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(record)))
    return document


def from_document(kind: type[Record], document: Any, *, where: str = "") -> Record:
    """Builds ``kind`` from a decoded JSON document.

    Raises:
        ContractError: a field is missing or of the wrong type, or the version is unknown.
            The message names the field by its path.
    """
    if not isinstance(document, dict):
        raise ContractError(f"{where or kind.__name__}: expected an object, got {_kind(document)}")
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for item in dataclasses.fields(kind):  # type: ignore[arg-type]
        path = f"{where}.{item.name}" if where else item.name
        if item.name not in document:
            if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
                raise ContractError(f"{path} is missing")
            continue
        values[item.name] = _decode(hints[item.name], document[item.name], path)
        if item.name == "schema_version" and values[item.name] != item.default:
            raise ContractError(
                f"{path} is {values[item.name]}; this edgectl reads version {item.default}"
            )
    return kind(**values)


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _decode(hint: Any, value: Any, path: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _decode_union(arguments, value, path)
    if origin is Literal:
        if value not in arguments:
            raise ContractError(f"{path} is {value!r}; expected one of {', '.join(arguments)}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise ContractError(f"{path}: expected a list, got {_kind(value)}")
        return tuple(_decode(arguments[0], v, f"{path}[{i}]") for i, v in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise ContractError(f"{path}: expected an object, got {_kind(value)}")
        return {k: _decode(arguments[1], v, f"{path}[{k!r}]") for k, v in value.items()}
    if dataclasses.is_dataclass(hint):
        return from_document(typing.cast("type[Any]", hint), value, where=path)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ContractError(f"{path}: expected {hint.__name__}, got {_kind(value)}")
    return value


def _decode_union(options: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and type(None) in options:
        return None
    failure: ContractError | None = None
    for option in options:
        if option is type(None):
            continue
        try:
            return _decode(option, value, path)
        except ContractError as error:
            failure = error
    raise failure or ContractError(f"{path} may not be null")
