"""A device that exists in memory only: answers are scripted, files are a dictionary.

device = FakeDevice()
device.answers("uname", stdout=b"Linux\\n")
device.run(["uname", "-s"]).stdout      # b"Linux\\n"
device.commands                         # [("uname", "-s")]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgectl.errors import DeviceError
from edgectl.remote.base import PARTIAL_SUFFIX, CommandResult, Progress

__all__ = ["FakeDevice"]

Answer = Callable[[tuple[str, ...], bytes], CommandResult]


@dataclass(slots=True, kw_only=True)
class FakeDevice:
    """`edgectl.remote.Device` for tests.

    ``commands`` and ``inputs`` record what was run; ``files`` and ``modes`` hold what was put. A
    command whose beginning nobody scripted ends with 127, as an unknown one does in a shell.
    """

    label: str = "fake@device:22"
    emulated: bool = False
    files: dict[str, bytes] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    commands: list[tuple[str, ...]] = field(default_factory=list)
    inputs: list[bytes] = field(default_factory=list)
    closed: bool = False
    _answers: list[tuple[tuple[str, ...], Answer]] = field(default_factory=list)

    def answers(
        self,
        *beginning: str,
        stdout: bytes = b"",
        stderr: bytes = b"",
        exit_code: int = 0,
        raises: BaseException | None = None,
    ) -> None:
        """Scripts what commands that begin with these words do; the latest script counts."""

        def answer(argv: tuple[str, ...], _stdin: bytes) -> CommandResult:
            if raises is not None:
                raise raises
            return CommandResult(argv=argv, exit_code=exit_code, stdout=stdout, stderr=stderr)

        self.answers_with(*beginning, answer=answer)

    def answers_with(self, *beginning: str, answer: Answer) -> None:
        """Like `answers`, computed from the command and its standard input."""
        self._answers.insert(0, (beginning, answer))

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_s: float = 60.0,  # noqa: ARG002 - nothing here takes time
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> CommandResult:
        """See `Device.run`."""
        command = tuple(argv)
        self.commands.append(command)
        self.inputs.append(stdin)
        for beginning, answer in self._answers:
            if command[: len(beginning)] == beginning:
                result = answer(command, stdin)
                if result.stderr and on_stderr is not None:
                    on_stderr(result.stderr)
                return result
        message = f"sh: {command[0]}: not found\n".encode()
        return CommandResult(argv=command, exit_code=127, stdout=b"", stderr=message)

    def put(
        self,
        source: Path | bytes,
        destination: str,
        *,
        mode: int = 0o644,
        offset: int = 0,
        progress: Progress | None = None,
        timeout_s: float = 600.0,  # noqa: ARG002
    ) -> int:
        """See `Device.put`."""
        data = source if isinstance(source, bytes) else source.read_bytes()
        kept = self.files.pop(destination + PARTIAL_SUFFIX, b"")[:offset]
        if len(kept) < offset:
            raise DeviceError(f"{destination} has fewer than {offset} bytes to go on from")
        self.files[destination] = kept + data[offset:]
        self.modes[destination] = mode
        if progress is not None:
            progress(len(data), len(data))
        return len(data) - offset

    def partial_size(self, destination: str) -> int:
        """See `Device.partial_size`."""
        return len(self.files.get(destination + PARTIAL_SUFFIX, b""))

    def get(self, source: str, *, max_bytes: int = 1 << 30, timeout_s: float = 600.0) -> bytes:  # noqa: ARG002
        """See `Device.get`."""
        if source not in self.files:
            raise DeviceError(f"{source} on {self.label} does not exist")
        if len(self.files[source]) > max_bytes:
            raise DeviceError(f"{source} on {self.label} has more than {max_bytes} bytes")
        return self.files[source]

    def close(self) -> None:
        """Notes it."""
        self.closed = True
