"""What the service is told: where it listens, which releases it serves, and its limits."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from edgectl_runner.contract import ContractError, from_document
from edgectl_runner.failures import CONFIGURATION, USAGE, RunnerError

__all__ = ["CONFIG_VERSION", "Limits", "ModelEntry", "ServiceConfig", "check_config", "read_config"]

CONFIG_VERSION = 1
LOOPBACK = ("127.0.0.1", "::1")
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_VERSION = re.compile(r"[1-9][0-9]{0,17}\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One served model: its name and version in addresses, and the release that it is."""

    name: str
    version: str
    release: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on what clients may do; times in seconds of the monotonic clock.

    ``max_body_bytes`` of ``None``: derived from the model's inputs. ``header_timeout_s`` and
    ``receive_timeout_s`` run from a request's first byte to the end of its headers and of its
    body; ``idle_timeout_s`` bounds an open connection without a request; ``send_timeout_s`` how
    long a client may take to read an answer; ``request_timeout_s`` how long a complete request
    may wait and compute; ``hang_timeout_s`` when a computation counts as hung.
    """

    queue_capacity: int = 32
    max_connections: int = 256
    max_header_bytes: int = 16384
    max_body_bytes: int | None = None
    header_timeout_s: float = 5.0
    receive_timeout_s: float = 30.0
    idle_timeout_s: float = 15.0
    send_timeout_s: float = 30.0
    request_timeout_s: float = 30.0
    hang_timeout_s: float = 300.0
    drain_timeout_s: float = 20.0
    max_sessions: int = 64
    session_idle_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """Everything; ``token_sha256`` is the digest of the token, which is kept nowhere.

    ``contexts`` is how many calls of a model run at the same time; ``threads`` how many workers
    the runtime uses for one (``None``: all processors with one context, else one each).
    ``python_path`` is where the worker's packages are, ``pinned`` the releases that the service
    itself protects from collection, ``attempt`` names this configuration in the service's state.
    """

    schema_version: int = CONFIG_VERSION
    host: str = "127.0.0.1"
    port: int = 8000
    token_sha256: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    models: tuple[ModelEntry, ...] = ()
    contexts: int = 1
    threads: int | None = None
    limits: Limits = Limits()
    python_path: str = ""
    pinned: tuple[str, ...] = ()
    attempt: str = ""


def read_config(path: Path) -> ServiceConfig:
    """The configuration in a file.

    Raises:
        RunnerError: there is none, or it is not valid.
    """
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise RunnerError(
            "no service is set up on this device", next_step="edgectl serve start MODEL"
        ) from error
    except ValueError as error:
        raise RunnerError(
            "the service's configuration is damaged",
            code=CONFIGURATION,
            next_step="start the service again with 'edgectl serve start MODEL'",
        ) from error
    return check_config(document)


def check_config(document: object) -> ServiceConfig:
    """The configuration in a decoded document, checked.

    Raises:
        RunnerError: exit code 2 or 3.
    """
    try:
        config = from_document(ServiceConfig, document)
    except ContractError as error:
        raise RunnerError(f"the service's configuration: {error}", code=USAGE) from error
    _check_models(config)
    if not 0 <= config.port <= 65535:
        raise RunnerError(f"{config.port} is no port", code=USAGE)
    if config.token_sha256 is not None and not _SHA256.match(config.token_sha256):
        raise RunnerError("the token's digest is not one", code=USAGE)
    if config.contexts < 1 or (config.threads is not None and config.threads < 1):
        raise RunnerError("contexts and threads are numbers of 1 or more", code=USAGE)
    if config.host not in LOOPBACK and config.token_sha256 is None:
        raise RunnerError(
            f"the service would be reachable on {config.host} without a token",
            code=CONFIGURATION,
            cause="anybody on the network could use the board",
            next_step="use a token, or keep the service on 127.0.0.1",
        )
    if (config.tls_certificate is None) != (config.tls_key is None):
        raise RunnerError("TLS needs both a certificate and a key", code=USAGE)
    return config


def _check_models(config: ServiceConfig) -> None:
    if not config.models:
        raise RunnerError("the service has no model to serve", code=USAGE)
    seen = set()
    for model in config.models:
        if not _MODEL_NAME.match(model.name):
            raise RunnerError(
                f"{model.name[:80]!r} cannot be a model's name in an address",
                code=USAGE,
                cause="letters, digits, '.', '_' and '-' are allowed, 128 at most",
            )
        if not _VERSION.match(model.version):
            raise RunnerError(f"{model.version[:40]!r} is no version number", code=USAGE)
        if (model.name, model.version) in seen:
            raise RunnerError(f"model {model.name} {model.version} is there twice", code=USAGE)
        seen.add((model.name, model.version))
