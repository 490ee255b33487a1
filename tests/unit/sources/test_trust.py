"""The question about trust: asked once, bound to the bytes, answered no by default."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from edgectl.errors import TrustRequiredError
from edgectl.sources import TrustPolicy

MODEL = Path("model.pt")


def test_nobody_to_ask_is_no(tmp_path: Path) -> None:
    with pytest.raises(TrustRequiredError, match="can run any code") as caught:
        TrustPolicy(state_dir=tmp_path).require(MODEL, "ab" * 32, "a pickled nn.Module")
    assert caught.value.exit_code == 3
    assert "--trust-model" in (caught.value.next_step or "")


def test_yes_is_remembered_for_these_bytes_only(tmp_path: Path) -> None:
    questions: list[str] = []

    def yes(question: str) -> bool:
        questions.append(question)
        return True

    policy = TrustPolicy(ask=yes, state_dir=tmp_path)
    policy.require(MODEL, "ab" * 32, "a pickle")
    policy.require(MODEL, "ab" * 32, "a pickle")
    assert len(questions) == 1
    assert "ab" * 32 in questions[0]
    policy.require(MODEL, "cd" * 32, "a pickle")
    assert len(questions) == 2
    # Remembered across processes, and where nobody is there to ask.
    TrustPolicy(state_dir=tmp_path).require(MODEL, "ab" * 32, "a pickle")
    store = tmp_path / "trusted_models.json"
    assert stat.S_IMODE(store.stat().st_mode) == 0o600


def test_no_is_not_remembered(tmp_path: Path) -> None:
    policy = TrustPolicy(ask=lambda _: False, state_dir=tmp_path)
    with pytest.raises(TrustRequiredError, match="not trusted"):
        policy.require(MODEL, "ab" * 32, "a pickle")
    assert not (tmp_path / "trusted_models.json").exists()


def test_trust_bound_to_another_digest_is_refused(tmp_path: Path) -> None:
    policy = TrustPolicy(trusted=True, digest="sha256:" + "cd" * 32, state_dir=tmp_path)
    with pytest.raises(TrustRequiredError, match="not the file that was trusted"):
        policy.require(MODEL, "ab" * 32, "a pickle")


@pytest.mark.parametrize("content", ["", "[]", "{", '{"sha256": []}', "\x00"])
def test_a_damaged_memory_trusts_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "trusted_models.json").write_text(content)
    with pytest.raises(TrustRequiredError):
        TrustPolicy(state_dir=tmp_path).require(MODEL, "ab" * 32, "a pickle")


def test_a_state_folder_that_cannot_be_written_only_forgets(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    TrustPolicy(trusted=True, state_dir=tmp_path / "file" / "x").require(MODEL, "ab", "a pickle")
