"""Keys through the real command: whom a device takes models from, and how that is changed."""

from __future__ import annotations

import json


def keys(board, *words):
    return board.edgectl("keys", *words, "--json").expect(0).document


def test_a_key_is_made_listed_and_rotated(board):
    made = keys(board, "create")["key"]
    (listed,) = keys(board, "list")["keys"]
    assert listed == made
    assert (
        "there is a key named 'default' already" in board.edgectl("keys", "create").expect(2).stderr
    )
    rotated = keys(board, "rotate")["key"]
    assert rotated["key_id"] != made["key_id"]
    assert rotated["predecessors"] == 1
    assert made["key_id"] not in board.edgectl("keys", "list").expect(0).stdout


def test_a_device_can_be_told_whom_to_trust(board):
    mine = keys(board, "create", "mine")["key"]
    friend = "ab" * 32
    would = keys(board, "trust", "mine", "--dry-run")
    assert would["keys"] == [{"key_id": mine["key_id"], "state": "active"}]
    assert keys(board, "trusted")["keys"] == []
    keys(board, "trust", mine["key_id"])
    both = keys(board, "trust", friend)["keys"]
    assert len(both) == 2
    left = keys(board, "distrust", "mine")["keys"]
    assert [k["key_id"] for k in left] != [mine["key_id"]]
    assert len(left) == 1
    assert keys(board, "trusted")["keys"] == left
    stored = json.loads((board.root / "trusted_keys.json").read_text())
    assert [k["public_key"] for k in stored["keys"]] == [friend]


def test_listed_only_takes_nothing_until_a_key_is_listed(board):
    ended = board.edgectl("keys", "mode", "listed").expect(0)
    assert "takes nothing now" in ended.stderr
    assert "mode listed" in ended.stdout
    # What was taken without a signature no longer starts.
    assert "it is not signed" in board.edgectl("rollback").expect(3).stderr
    assert board.edgectl("keys", "mode", "first-use").expect(0)
    board.edgectl("rollback").expect(0)


def test_a_key_id_that_is_not_ours_is_explained(board):
    error = board.edgectl("keys", "trust", "0123456789abcdef").expect(2).stderr
    assert "64 hexadecimal digits" in error
    error = board.edgectl("keys", "distrust", "0123456789abcdef").expect(2).stderr
    assert "the device trusts no key" in error
