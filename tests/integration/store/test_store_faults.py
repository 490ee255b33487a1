"""The fault campaign's short form: whatever breaks, `current` is whole and the next try works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CAMPAIGN = Path(__file__).parents[3] / "scripts" / "fault-campaign"


@pytest.mark.skipif(shutil.which("strace") is None, reason="sudo apt install strace")
def test_a_sample_of_every_fault_is_survived() -> None:
    done = subprocess.run(
        [CAMPAIGN, "--every", "24", "--random-kills", "6", "--power-cuts", "3"],
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    survived = re.search(r"survived (\d+) of (\d+)", done.stdout)
    assert survived is not None
    assert survived[1] == survived[2]
    assert int(survived[2]) >= 20
