from __future__ import annotations

import pytest

from edgectl.remote.throttling import decode_throttling


@pytest.mark.parametrize(
    ("flags", "now", "since_boot", "text"),
    [
        (0, (), (), "ok"),
        (
            0x50005,
            ("under-voltage", "throttled"),
            ("under-voltage", "throttled"),
            "now: under-voltage, throttled; since boot: under-voltage, throttled",
        ),
        (0x80000, (), ("temperature limit",), "since boot: temperature limit"),
        (0x2, ("frequency capped",), (), "now: frequency capped"),
    ],
)
def test_bits(flags: int, now: tuple[str, ...], since_boot: tuple[str, ...], text: str) -> None:
    status = decode_throttling(flags)
    assert (status.known, status.now, status.since_boot) == (True, now, since_boot)
    assert str(status) == text


def test_not_known_is_not_ok() -> None:
    assert str(decode_throttling(None)) == "unknown"
    assert not decode_throttling(None).known
