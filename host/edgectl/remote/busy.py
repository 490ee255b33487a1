"""Is somebody else deploying to a device: asked first, in one short command.

A deployment may have to compile for minutes before it takes the device's lock. It should not
find out only then that somebody else is at work.
"""

from __future__ import annotations

import json

from edgectl.errors import BusyError
from edgectl.remote.base import Device

__all__ = ["check_free"]

# Needs no runner on the device. A lock that is held cannot be taken; its file says by whom
# (see `edgectl_runner.locking`). The root is found as `edgectl_runner.store.default_root` does.
_ASK = """
import fcntl, json, os
root = os.environ.get("EDGECTL_ROOT") or os.path.join(os.environ.get("XDG_DATA_HOME")
    or os.path.join(os.path.expanduser("~"), ".local", "share"), "edgectl")
for name in ("session", "lock"):
    try:
        with open(os.path.join(root, name), "r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(file.read(4096) or "{}")
                break
    except OSError:
        pass
"""


def check_free(device: Device, *, python: str = "python3") -> None:
    """Refuses a device that somebody else holds; anything that cannot be told counts as free.

    Only a courtesy: what decides is the lock, which the deployment takes later.

    Raises:
        BusyError: naming the holder.
        ConnectionFailedError: the connection broke.
    """
    result = device.run([python, "-c", _ASK], timeout_s=30.0)
    try:
        note = json.loads(result.stdout)
    except ValueError:
        return
    if not isinstance(note, dict):
        return
    who, verb, pid = (note.get(name) or "unknown" for name in ("who", "verb", "pid"))
    raise BusyError(
        f"another deployment to {device.label} is under way: {who} ({verb}, process {pid})",
        cause="deployments to one device take turns",
        next_step="try again when it has ended; a holder that died frees the device by itself",
    )
