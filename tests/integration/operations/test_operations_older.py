"""An old bundle does not replace a newer one unless that is asked for."""

from __future__ import annotations

from tiny_bundles import affine_bundle


def test_an_older_bundle_is_refused_unless_it_is_asked_for(board, tmp_path):
    old = affine_bundle(tmp_path / "old.edgectl", precision="old", sequence=1000)
    new = affine_bundle(tmp_path / "new.edgectl", precision="new", sequence=2000)
    deploy = ("--iterations", "1", "--json")
    release = board.edgectl("deploy", new, *deploy).expect(0).document["release"]
    error = board.edgectl("deploy", old, *deploy).expect(3).document["error"]
    assert "number 1000" in error["message"]
    assert "number 2000" in error["message"]
    assert "--allow-older" in error["next_step"]
    assert board.current() == release
    asked = board.edgectl("deploy", old, *deploy, "--allow-older").expect(0).document
    assert board.current() == asked["release"] != release
