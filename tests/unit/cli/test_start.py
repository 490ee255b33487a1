"""The command line starts without torch, and every failure ends in one document or three lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

import edgectl
from edgectl.cli.main import COMMANDS, main

HEAVY = ("torch", "torch_mlir", "iree", "paramiko", "numpy", "rich")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_and_version_import_nothing_heavy(arguments):
    program = (
        "import sys\n"
        "from edgectl.cli.main import main\n"
        f"try: main({arguments!r})\n"
        "except SystemExit as end: code = end.code\n"
        f"print('HEAVY', [m for m in {HEAVY!r} if m in sys.modules], code)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip().endswith("HEAVY [] 0")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, capsys):
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    assert "Usage: edgectl" in capsys.readouterr().out


def run(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    captured = capsys.readouterr()
    return end.value.code, captured.out, captured.err


def test_a_wrong_option_exits_2_and_says_where_help_is(capsys):
    code, out, err = run(["inspect", "--wrong"], capsys)
    assert (code, out) == (2, "")
    assert "error: No such option" in err
    assert "edgectl inspect --help" in err


def test_failures_are_documents_with_json(capsys):
    code, out, err = run(["inspect", "--json", "absent.edgectl"], capsys)
    document = json.loads(out)
    assert (code, err) == (2, "")
    schema = Path(edgectl.__path__[0]) / "schemas" / "error.schema.json"
    jsonschema.validate(document, json.loads(schema.read_text()))
    assert document["error"]["code"] == 2
    assert "absent.edgectl" in document["error"]["message"]


def test_no_traceback_without_debug(capsys, monkeypatch, tmp_path):
    import edgectl.cli.targets as command

    monkeypatch.setenv("EDGECTL_HOME", str(tmp_path))
    monkeypatch.setattr(command, "target_names", lambda: 1 / 0)
    code, _, err = run(["targets"], capsys)
    assert code == 1
    assert "Traceback" not in err
    assert "ZeroDivisionError" in (tmp_path / "state/logs/internal-error.log").read_text()
