"""Configurations at random, resolved by edgectl and by ``ssh -G``: both must say the same."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgectl.remote.ssh_config import host_settings
from edgectl.remote.ssh_options import SshOptions

NAMES = ("pi", "pi1", "pi2", "a.lab", "b.lab", "lab")
PATTERNS = (*NAMES, "*", "pi?", "*.lab", "!pi1", "!a.lab", "p*")

patterns = st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3)
setting = st.one_of(
    st.sampled_from(["alice", "bob"]).map(lambda v: f"User {v}"),
    st.integers(1, 65535).map(lambda v: f"Port {v}"),
    st.sampled_from(["10.0.0.1", "%h.example", "pi1", "b.lab"]).map(lambda v: f"HostName {v}"),
    st.sampled_from(["gate", "x@gate:23", "none", "one,two"]).map(lambda v: f"ProxyJump {v}"),
    st.sampled_from(["/k/one", "/k/two", '"/k/with space"']).map(lambda v: f"IdentityFile {v}"),
    st.sampled_from(["yes", "no"]).map(lambda v: f"IdentitiesOnly {v}"),
    st.sampled_from(["yes", "ask", "accept-new"]).map(lambda v: f"StrictHostKeyChecking = {v}"),
    st.sampled_from(["one", "two"]).map(lambda v: f"HostKeyAlias\t{v}"),
)
criterion = st.one_of(
    st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2).map(
        lambda p: f"host {','.join(p)}"
    ),
    st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2).map(
        lambda p: f"originalhost {','.join(p)}"
    ),
    st.sampled_from(["alice", "bob", "!bob,*"]).map(lambda u: f"user {u}"),
    st.sampled_from(NAMES).map(lambda n: f"!host {n}"),
)
opening = st.one_of(
    st.just("Match all"),
    st.lists(criterion, min_size=1, max_size=2).map(lambda c: "Match " + " ".join(c)),
    patterns.map(lambda p: "Host " + " ".join(p)),
)
block = st.tuples(opening, st.lists(setting, max_size=3)).map(lambda b: "\n  ".join([b[0], *b[1]]))
configuration = st.tuples(st.lists(setting, max_size=2), st.lists(block, max_size=5)).map(
    lambda c: "\n".join([*c[0], *c[1], ""])
)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no OpenSSH client is installed")
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=configuration, included=configuration, alias=st.sampled_from(NAMES))
def test_same_answers(
    options_for: Callable[..., SshOptions], home: Path, text: str, included: str, alias: str
) -> None:
    config, other = home / "config", home / "other"
    config.write_text(f"{text}\nMatch all\nInclude {other}\n")
    other.write_text(included)
    said = subprocess.run(
        ["ssh", "-G", "-F", str(config), alias], capture_output=True, text=True, check=True
    ).stdout
    theirs: dict[str, list[str]] = {}
    for line in said.splitlines():
        name, _, value = line.partition(" ")
        theirs.setdefault(name, []).append(value)
    ours = host_settings(alias, options_for(config_file=config))
    assert ours.hostname == theirs["hostname"][0]
    assert ours.port == int(theirs["port"][0])
    if theirs["user"][0] in ("alice", "bob"):
        assert ours.user == theirs["user"][0]
    assert ours.host_key_alias == theirs.get("hostkeyalias", [None])[0]
    assert ours.identities_only is (theirs["identitiesonly"][0] == "yes")
    assert ",".join(ours.proxy_jump) == theirs.get("proxyjump", [""])[0]
    strictness = {"true": "yes"}.get(
        theirs["stricthostkeychecking"][0], theirs["stricthostkeychecking"][0]
    )
    assert ours.strict_host_key_checking == strictness
    if not ours.default_identities:
        assert [str(path) for path in ours.identity_files] == theirs["identityfile"]
