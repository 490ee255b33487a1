"""Looking after a device through the real command: what is there, back, clean-up, and all gone."""

from __future__ import annotations

import fcntl
import json
import time


def test_status_tells_what_is_current_and_what_a_rollback_goes_to(board):
    first, second, third = board.releases
    document = board.edgectl("status", "--json").expect(0).document
    status = document["status"]
    assert (status["current"], status["previous"]) == (third, second)
    assert {r["release"] for r in status["releases"]} == {first, second, third}
    assert status["locked_by"] is None
    assert not document["emulated"]
    table = board.edgectl("status").expect(0).stdout
    assert [line for line in table.splitlines() if third in line and "current" in line]
    assert "free on the card" in table


def test_history_names_events_and_who_did_them(board):
    records = board.edgectl("history", "--json").expect(0).document["records"]
    assert [r["event"] for r in records] == ["install"] * 3
    assert [r["release"] for r in records] == list(board.releases)
    assert {r["who"] for r in records} == {"ada@desk"}
    assert len(board.edgectl("history", "--last", "1", "--json").document["records"]) == 1
    assert "ada@desk" in board.edgectl("history").expect(0).stdout


def test_rollback_goes_back_and_is_in_the_history(board):
    first, second, third = board.releases
    start = time.monotonic()
    document = board.edgectl("rollback", "--json").expect(0).document
    assert time.monotonic() - start < 5.0
    assert (document["current"], document["before"]) == (second, third)
    assert board.current() == second
    # By its first digits, and to one that is not the previous.
    board.edgectl("rollback", first[:6]).expect(0)
    assert board.current() == first
    assert board.edgectl("history", "--json").document["records"][-1]["event"] == "rollback"


def test_a_dry_run_of_a_rollback_changes_nothing(board):
    _, second, third = board.releases
    before = board.files()
    text = board.edgectl("rollback", "--dry-run").expect(0).stdout
    assert f"{second} would become current" in text
    assert board.current() == third
    assert board.files() == before


def test_a_rollback_to_a_release_that_is_not_there_names_those_that_are(board):
    error = board.edgectl("rollback", "feedfeed").expect(2).stderr
    assert "no release begins with 'feedfeed'" in error
    assert board.releases[0] in error
    assert "not installed" in board.edgectl("rollback", "0" * 16).expect(7).stderr


def test_a_damaged_release_is_not_gone_back_to(board):
    module = board.root / "releases" / board.releases[1] / "golden" / "0" / "input_0.npy"
    module.unlink()
    module.write_bytes(b"rotten")
    for words in (("rollback",), ("rollback", "--dry-run")):
        assert "is damaged" in board.edgectl(*words).expect(7).stderr
    assert board.current() == board.releases[2]


def test_gc_removes_what_nothing_needs_and_not_what_is_pinned(board):
    first, *_ = board.releases
    board.edgectl("pin", first[:5]).expect(0)
    assert board.edgectl("gc", "--json").expect(0).document["removed"] == []
    board.edgectl("unpin", first, "--dry-run").expect(0)
    assert board.edgectl("gc", "--json").expect(0).document["removed"] == []
    board.edgectl("unpin", first).expect(0)
    dry = board.edgectl("gc", "--dry-run", "--json").expect(0).document
    assert dry["removed"] == [first]
    assert (board.root / "releases" / first).is_dir()
    done = board.edgectl("gc", "--json").expect(0).document
    assert done["removed"] == [first]
    assert done["freed_bytes"] >= dry["freed_bytes"] > 0
    assert not (board.root / "releases" / first).exists()


def test_uninstall_leaves_nothing_behind(board):
    error = board.edgectl("uninstall").expect(2).stderr
    assert "--yes" in error, "nobody was there to be asked"
    before = board.files()
    assert board.edgectl("uninstall", "--dry-run", "--json").expect(0).document["freed_bytes"] > 0
    assert board.files() == before
    board.edgectl("uninstall", "--yes").expect(0)
    assert list(board.root.parent.iterdir()) == []
    assert "nothing of edgectl is installed" in board.edgectl("status").expect(7).stderr


def test_one_release_is_uninstalled_unless_it_is_the_current_one(board):
    first, _, third = board.releases
    dry = board.edgectl("uninstall", first, "--dry-run", "--json").expect(0).document
    assert (board.root / "releases" / first).is_dir()
    done = board.edgectl("uninstall", first, "--json").expect(0).document
    assert done["removed"] == dry["removed"] == [first]
    assert done["freed_bytes"] >= dry["freed_bytes"] > 0
    assert not (board.root / "releases" / first).exists()
    assert "is the current one" in board.edgectl("uninstall", third).expect(2).stderr


def test_a_device_at_work_says_who_holds_it(board):
    with (board.root / "session").open("w") as file:
        json.dump({"who": "bob@bench", "verb": "deploy", "pid": 1, "token": "x"}, file)
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        error = board.edgectl("gc").expect(75).stderr
        assert "bob@bench" in error
        assert "bob@bench" in board.edgectl("status").expect(0).stdout
    board.edgectl("gc").expect(0)


def test_errors_are_documents_too(board):
    ended = board.edgectl("rollback", "feed", "--json").expect(2)
    assert ended.document["error"]["next_step"] == "edgectl status"
    assert ended.stderr == ""
