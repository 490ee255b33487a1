"""Every error that edgectl raises on purpose, with the exit code it ends in.

    EdgectlError                     1   a fault of ours
    ├── UsageError                   2   the command line or an input file is not what was asked for
    ├── ConfigurationError           3   a settings, device or target file is wrong
    │   └── TrustRequiredError       3   the file can run code and nobody said that it may
    ├── UnsupportedModelError        4   the model cannot be exported or lowered
    ├── CompileError                 5   the compiler refused what we gave it
    ├── ConnectionFailedError        6   unreachable, not authenticated, or host key not known
    │   ├── AuthenticationError      6
    │   └── HostKeyError             6
    ├── DeviceError                  7   the device lacks something or broke while at it
    ├── OutputMismatchError          8   the device computes something else than PyTorch
    ├── RegressionError              9   slower than allowed
    └── BusyError                   75   somebody else is deploying to that device

A message says what happened; ``cause`` the likely reason; ``next_step`` what to type next. The
command line prints the three and exits with ``exit_code``; nobody else prints.

    try:
        deployment = deploy(bundle, device)
    except OutputMismatchError as error:
        print(error.next_step)
"""

from __future__ import annotations

__all__ = [
    "AuthenticationError",
    "BusyError",
    "CompileError",
    "ConfigurationError",
    "ConnectionFailedError",
    "DeviceError",
    "EdgectlError",
    "HostKeyError",
    "OutputMismatchError",
    "RegressionError",
    "TrustRequiredError",
    "UnsupportedModelError",
    "UsageError",
]


class EdgectlError(Exception):
    """What went wrong, why it probably did, and what to do about it."""

    exit_code = 1

    def __init__(self, message: str, *, cause: str | None = None, next_step: str | None = None):
        super().__init__(message)
        self.message = message
        self.cause = cause
        self.next_step = next_step


class UsageError(EdgectlError):
    """The command line, or a file named on it, is not what was asked for."""

    exit_code = 2


class ConfigurationError(EdgectlError):
    """A settings, device or target file is wrong."""

    exit_code = 3


class TrustRequiredError(ConfigurationError):
    """Loading this file can run code, and nobody said that it may."""


class UnsupportedModelError(EdgectlError):
    """The model cannot be exported or lowered; the message names the module and the operator."""

    exit_code = 4


class CompileError(EdgectlError):
    """The compiler refused the lowered module; its own words are in a log file."""

    exit_code = 5


class ConnectionFailedError(EdgectlError):
    """The device cannot be reached."""

    exit_code = 6


class AuthenticationError(ConnectionFailedError):
    """The device was reached and let nobody in."""


class HostKeyError(ConnectionFailedError):
    """The device's host key is unknown, or is not the one it had."""


class DeviceError(EdgectlError):
    """The device lacks something that the deployment needs, or failed while doing it."""

    exit_code = 7


class OutputMismatchError(EdgectlError):
    """What the device computes is not what PyTorch computes."""

    exit_code = 8


class RegressionError(EdgectlError):
    """Slower than ``--max-regression`` allows."""

    exit_code = 9


class BusyError(EdgectlError):
    """Another deployment to the same device is under way."""

    exit_code = 75
