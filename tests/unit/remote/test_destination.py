from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgectl.errors import UsageError
from edgectl.remote.destination import Destination, parse_destination


@pytest.mark.parametrize(
    ("text", "user", "host", "port"),
    [
        ("raspberrypi.local", None, "raspberrypi.local", None),
        ("pi@10.0.0.7", "pi", "10.0.0.7", None),
        ("pi@host:2222", "pi", "host", 2222),
        ("[fe80::1%eth0]:22", None, "fe80::1%eth0", 22),
        ("pi@[::1]", "pi", "::1", None),
        ("::1", None, "::1", None),
        ("ssh://pi@host:22/", "pi", "host", 22),
        ("DOMAIN\\user@corp@host", "DOMAIN\\user@corp", "host", None),
    ],
)
def test_what_people_type(text: str, user: str | None, host: str, port: int | None) -> None:
    assert parse_destination(text) == Destination(user=user, host=host, port=port)


@pytest.mark.parametrize(
    "text",
    [
        *("", "@host", "pi@", "host:", "host:ssh", "host:0", "host:65536", "host:-1", "[::1"),
        *("[::1]x", "-oProxyCommand=id", "-l@host", "a b", "pi@ho\nst", "host:²²"),
    ],
)
def test_what_cannot_be_an_address(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_destination(text)
    assert "user@host" in (caught.value.next_step or "")


@given(st.text())
def test_any_text_is_an_address_or_a_usage_error(text: str) -> None:
    try:
        found = parse_destination(text)
    except UsageError:
        return
    assert found.host
    assert not found.host.startswith("-")
