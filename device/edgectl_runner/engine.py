"""Runs one function of a compiled module: memory-mapped, with states carried between calls.

    engine = Engine.load(Path("module.vmfb"), entry_point, states=initial_states, threads=4)
    outputs = engine.call([image])

Buffers that the runtime owns never leave this module: outputs are copies, so that nothing points
into memory that a later call or `Engine.close` frees. Objects of the runtime are released in the
order context, module, instance.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgectl_runner.binding import element_type_of, native_runtime
from edgectl_runner.contract import EntryPoint, TensorSpec
from edgectl_runner.failures import RunnerError
from edgectl_runner.tensors import check_inputs, dtype_named

__all__ = ["Engine", "PreparedCall", "Value", "function_names"]

RELEASE_TIMEOUT_S = 5.0
_DEVICES: dict[int, Any] = {}

Value = np.ndarray | bool | int | float | str | None
"""What an output of a model can be: an array, or a literal known at compile time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """Inputs that the runtime already holds, beside the arrays they were copied from."""

    arrays: tuple[np.ndarray, ...]
    buffers: tuple[Any, ...]


def function_names(names: Sequence[str]) -> tuple[str, ...]:
    """The functions that a user can call: no initializer, no asynchronous twins."""
    return tuple(n for n in names if not n.startswith("__") and not n.endswith("$async"))


class Engine:
    """One loaded module and the function of it that is called."""

    def __init__(self, entry: EntryPoint, threads: int, runtime: _Loaded):
        self.entry = entry
        self.threads = threads
        self._runtime: _Loaded | None = runtime
        self._states: list[Any] = []
        self._initial_states: list[Any] = []

    @classmethod
    def load(
        cls,
        module: Path,
        entry: EntryPoint,
        *,
        states: Mapping[str, np.ndarray] | None = None,
        parameters: Mapping[str, Path] | None = None,
        threads: int | None = None,
    ) -> Engine:
        """Maps ``module`` and gets its function ready.

        Args:
            module: a ``.vmfb`` file; it must stay as it is while the engine lives.
            entry: the function and its signature.
            states: first value of each state, by `StateSpec.initial`.
            parameters: archives (``.irpa``) with weights kept outside the module, by scope.
            threads: one runs in the caller's own thread; ``None`` takes every processor that
                this process may use. The number of worker threads is a setting of the whole
                process in IREE, so the first engine of a process decides it.

        Raises:
            RunnerError: the module cannot be loaded, or has no such function.
        """
        count = threads if threads is not None else len(os.sched_getaffinity(0))
        if count < 1:
            raise RunnerError(f"cannot run with {count} threads", code=2)
        engine = cls(entry, count, _load(module, entry, count, parameters or {}))
        for state in entry.states:
            if states is None or state.initial not in states:
                raise RunnerError(
                    f"state {state.spec.name!r} has no first value ({state.initial} is missing)",
                    cause="the bundle is not complete",
                )
            array = check_inputs([state.spec], [states[state.initial]])[0]
            engine._initial_states.append(engine._upload(array, state.spec))
        engine.reset()
        return engine

    def reset(self) -> None:
        """Sets every state back to its first value."""
        self._states = list(self._initial_states)

    def saved_states(self) -> tuple[Any, ...]:
        """The states as they are now; opaque, for `restore`."""
        return tuple(self._states)

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Goes on from saved states, so that one engine serves several sessions in turn."""
        self._states = list(saved)

    def prepare(self, inputs: Sequence[np.ndarray]) -> PreparedCall:
        """Checks the inputs and hands them to the runtime, so that a call can be timed alone.

        Raises:
            RunnerError: exit code 2; expected and got, input by input.
        """
        arrays = check_inputs(self.entry.inputs, inputs)
        return PreparedCall(
            arrays=tuple(arrays),
            buffers=tuple(
                self._upload(a, s) for a, s in zip(arrays, self.entry.inputs, strict=True)
            ),
        )

    def arguments(self, prepared: PreparedCall) -> Any:
        """The argument list of the next call, in the order of the compiled function."""
        runtime = self._require()
        refs: dict[int, Any] = {
            s.argument_index: ref for s, ref in zip(self.entry.states, self._states, strict=True)
        }
        free = (i for i in range(len(prepared.buffers) + len(refs)) if i not in refs)
        refs.update(zip(free, prepared.buffers, strict=True))
        arguments = runtime.api.VmVariantList(len(refs))
        for index in range(len(refs)):
            arguments.push_ref(refs[index])
        return arguments

    def results(self) -> Any:
        """An empty list for the results of one call."""
        return self._require().api.VmVariantList(max(1, self.entry.result_count))

    def invoke(self, arguments: Any, results: Any) -> None:
        """Computes; this and nothing else is what `measurement` times."""
        runtime = self._require()
        runtime.context.invoke(runtime.function, arguments, results)

    def keep_states(self, results: Any) -> None:
        """Makes the state results of a call the state arguments of the next."""
        self._states = [results.get_as_ref(s.result_index) for s in self.entry.states]

    def call(self, inputs: Sequence[np.ndarray] | PreparedCall) -> list[Value]:
        """One call: states in, compute, states kept, outputs in the order of the model.

        Raises:
            RunnerError: an input does not fit, or the runtime failed.
        """
        prepared = inputs if isinstance(inputs, PreparedCall) else self.prepare(inputs)
        arguments, results = self.arguments(prepared), self.results()
        try:
            self.invoke(arguments, results)
        except (ValueError, RuntimeError) as error:
            raise RunnerError(
                f"the compiled function {self.entry.function!r} failed: {_first_line(error)}",
                cause="the module and its manifest disagree, or the device ran out of memory",
            ) from error
        outputs = self.outputs(prepared, results)
        self.keep_states(results)
        return outputs

    def outputs(self, prepared: PreparedCall, results: Any) -> list[Value]:
        """The model's outputs from the results of one call, as copies."""
        values: list[Value] = []
        for binding in self.entry.outputs:
            if binding.source == "literal":
                values.append(binding.literal)
                continue
            if binding.index is None:
                raise RunnerError(f"output {binding.name!r} of the manifest has no index")
            if binding.source == "input":
                values.append(np.array(prepared.arrays[binding.index]))
                continue
            if binding.index >= len(results):
                raise RunnerError(
                    f"output {binding.name!r} is result {binding.index}, but "
                    f"{self.entry.function!r} returned {len(results)}",
                    cause="the module and its manifest disagree",
                )
            values.append(self._download(results, binding.index, binding.spec))
        return values

    def close(self) -> None:
        """Releases the module's memory; the engine cannot be used afterwards."""
        self._states, self._initial_states = [], []
        if self._runtime is not None:
            self._runtime.release()
            self._runtime = None

    def _require(self) -> _Loaded:
        if self._runtime is None:
            raise RunnerError("the engine is closed", code=1)
        return self._runtime

    def _upload(self, array: np.ndarray, spec: TensorSpec) -> Any:
        runtime = self._require()
        api = runtime.api
        element_type = element_type_of(array.dtype)
        if element_type is None:
            raise RunnerError(f"input {spec.name!r}: the runtime knows no dtype {array.dtype}")
        return runtime.device.allocator.allocate_buffer_copy(
            memory_type=api.MemoryType.DEVICE_LOCAL | api.MemoryType.HOST_VISIBLE,
            allowed_usage=api.BufferUsage.DEFAULT,
            device=runtime.device,
            buffer=array,
            element_type=element_type,
        )

    def _download(self, results: Any, index: int, spec: TensorSpec | None) -> np.ndarray:
        api = self._require().api
        view = results.get_as_object(index, api.HalBufferView)
        shape = tuple(view.shape)
        dtype = np.dtype(api.HalElementType.map_to_dtype(view.element_type))
        if spec is not None:
            # The runtime's integers carry no sign, so the manifest's dtype decides between
            # readings of the same bytes; another width is a fault.
            wanted = dtype_named(spec.dtype)
            if wanted.itemsize != dtype.itemsize:
                raise RunnerError(
                    f"output {spec.name!r}: expected {wanted}, the module returned {dtype}",
                    cause="the module and its manifest disagree",
                )
            dtype_out = wanted
        else:
            dtype_out = dtype
        if 0 in shape:
            return np.empty(shape, dtype_out)
        mapped = view.map().asarray(shape, dtype)
        return np.array(mapped).view(dtype_out) if dtype_out != dtype else np.array(mapped)


class _Loaded:
    """Objects of the runtime that keep one another alive."""

    def __init__(
        self,
        api: Any,
        instance: Any,
        device: Any,
        module: Any,
        context: Any,
        function: Any,
        unmapped: threading.Event,
    ):
        self.api = api
        self.instance = instance
        self.device = device
        self.module = module
        self.context = context
        self.function = function
        self._unmapped = unmapped

    def release(self) -> None:
        """Lets go of everything and waits until the file is no longer mapped.

        The last reference is often dropped by a worker thread, which then needs the interpreter
        to unmap the file: waiting here gives it the chance, and an interpreter that ends right
        after this would otherwise be gone under the worker.
        """
        self.function = self.context = self.module = self.device = self.instance = None
        self._unmapped.wait(RELEASE_TIMEOUT_S)


def _load(
    module_path: Path, entry: EntryPoint, threads: int, parameters: Mapping[str, Path]
) -> _Loaded:
    api = native_runtime()
    instance = api.VmInstance()
    try:
        unmapped = threading.Event()
        # Not `VmModule.mmap`: it opens the file for writing too (IREE 3.13), and the files of a
        # release are read-only, for their owner as well.
        module = api.VmModule.wrap_buffer(
            instance, _mapped(module_path), destroy_callback=unmapped.set
        )
    except (ValueError, RuntimeError, OSError) as error:
        raise RunnerError(
            f"{module_path.name} is not a module this runtime reads: {_first_line(error)}",
            cause="it was compiled by another version of IREE, or is damaged",
            next_step="compile it again with this edgectl",
        ) from error
    names = function_names(module.function_names)
    if entry.function not in names:
        raise RunnerError(
            f"the module has no function {entry.function!r}; it has {', '.join(names) or 'none'}",
            cause="the manifest does not belong to this module",
        )
    device = _device(api, threads)
    modules = [api.create_hal_module(instance, device)]
    if _wants_parameters(module_path):
        modules.append(_parameters_module(api, instance, parameters))
    modules.append(module)
    try:
        context = api.VmContext(instance, modules)
    except (ValueError, RuntimeError) as error:
        raise _load_error(error, parameters) from error
    function = module.lookup_function(entry.function)
    return _Loaded(api, instance, device, module, context, function, unmapped)


def _device(api: Any, threads: int) -> Any:
    """The device of that many threads; made once and kept as long as the process lives.

    Never given up, for a reason: taking it down joins its workers with Python's interpreter lock
    held, and a worker that just dropped the last reference to a memory-mapped module waits for
    that lock (IREE 3.13). Closing an engine hung for good every other time on a 19 MB model.
    """
    if threads not in _DEVICES:
        if threads == 1:
            _DEVICES[threads] = api.get_cached_hal_driver("local-sync").create_default_device()
        else:
            # Not pinned: the kernel may move workers away from whatever else the board does.
            api.parse_flags(f"--task_topology_group_count={threads}")
            _DEVICES[threads] = api.get_cached_hal_driver("local-task").create_default_device()
    return _DEVICES[threads]


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _wants_parameters(module_path: Path) -> bool:
    with _mapped(module_path) as view:
        # The name of the import table's module, near the start of the flatbuffer's strings.
        return view.find(b"io_parameters") != -1


def _parameters_module(api: Any, instance: Any, parameters: Mapping[str, Path]) -> Any:
    providers = []
    for scope, path in parameters.items():
        index = api.ParameterIndex()
        try:
            index.load(str(path))
        except (ValueError, RuntimeError, OSError) as error:
            raise RunnerError(f"parameter file {path.name} cannot be read: {error}") from error
        providers.append(index.create_provider(scope=scope))
    return api.create_io_parameters_module(instance, *providers)


def _load_error(error: Exception, parameters: Mapping[str, Path]) -> RunnerError:
    text = str(error)
    if "parameter" in text:
        have = ", ".join(f"scope {s!r} from {p.name}" for s, p in parameters.items()) or "none"
        return RunnerError(
            f"the module wants parameters from outside that are not there: {_first_line(error)} "
            f"(supplied: {have})",
            cause="weights were kept in a separate archive that the bundle does not hold",
            next_step="compile with the weights inside, or add the .irpa file of that scope",
        )
    return RunnerError(
        f"the module cannot be loaded: {_first_line(error)}",
        cause="it was compiled by another version of IREE, or for another processor",
        next_step="compile it again with this edgectl for this board",
    )


def _first_line(error: Exception) -> str:
    """The runtime's own words without its source path and stack."""
    line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    position = line.find(".c:")
    if position != -1:
        line = line[position:].split(" ", 1)[-1]
    return line[:300]
