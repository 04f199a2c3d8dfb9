"""The memory plan's example: each command of its README prints what stands below it, `...` for what is left out."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from deepdraft.cli.main import main

FOLDER = Path(__file__).parents[2] / "examples" / "memory_plan"
BLOCKS = re.findall(r"^```\n\$ (.*?)\n(.*?)^```$", (FOLDER / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def pattern(shown: str) -> str:
    """A line `...` stands for any lines, at the end of a line for its rest."""
    lines = [
        "(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + "\n"
        for line in shown.splitlines()
    ]
    return "".join(lines)


def test_there_are_commands() -> None:
    assert len(BLOCKS) == 4


@pytest.mark.parametrize(("command", "shown"), BLOCKS)
def test_a_command_prints_what_is_shown(command, shown, monkeypatch, capsys) -> None:
    monkeypatch.chdir(FOLDER)
    name, *words = shlex.split(command)
    assert name == "deepdraft"
    assert main(words) == 0
    assert re.fullmatch(pattern(shown), capsys.readouterr().out)
