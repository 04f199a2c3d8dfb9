"""The guide's figures are the planner's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cli.plan_log import sglang_log

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "plan.md").read_text()
COMMAND = (
    "plan", "kimi-k2.6", "--drafter", "kimi-k2.6-dflash", "--device", "RTX PRO 6000", "--engine", "sglang",
    "--engine-version", "0.5.12", "--tp", 8, "--context-length", "200k", "--max-running-requests", 8, "--json",
)  # fmt: skip
FRACTIONS = (0.85, 0.92, 0.93, 0.94)


def row(title: str) -> list[int]:
    """The figures of a row of the table of pools."""
    (cells,) = re.findall(rf"^\| {re.escape(title)} \| (.*) \|$", GUIDE, re.MULTILINE)
    return [int(cell.replace(",", "")) for cell in cells.split(" | ")]


@pytest.mark.parametrize("place", range(4))
def test_the_table_of_pools(called, tmp_path, place) -> None:
    fraction = ("--mem-fraction-static", FRACTIONS[place])
    assert called(*COMMAND, *fraction).json["kv_pool_tokens"] == row("from config, device and stored bytes")[place]
    log = tmp_path / "server.log"
    log.write_text(sglang_log(0.94, 218_484, 4.2))
    measured = called(*COMMAND, *fraction, "--server-log", log).json
    assert measured["kv_pool_tokens"] == row("by the start at 0.94")[place]


def test_the_first_lines_that_are_shown(called) -> None:
    shown = GUIDE.split("```\n")[2].split("\n...")[0]
    words = [word for word in COMMAND if word != "--json"]
    out = called(*words, "--mem-fraction-static", 0.94).out
    assert out.startswith(shown)


def test_every_key_that_is_named_is_printed(called) -> None:
    named = re.findall(r"`(\w+)`", GUIDE.split("## JSON")[1].split("With\n")[0])
    printed = called(*COMMAND).json
    assert len(named) > 10
    assert set(named) <= set(printed)


@pytest.mark.parametrize(
    ("place", "flags"),
    [
        (0, ("sglang", "--tp", 4, "--context-length", "200k", "--device", "H200")),
        (1, ("vllm", "--tp", 4, "--max-model-len", "200k", "--device", "H200")),
        (2, ("llamacpp", "--ctx-size", 131_072, "--parallel", 1)),
    ],
)
def test_a_token_of_deepseek_v4(called, place, flags) -> None:
    (cells,) = re.findall(r"^\| one token, Flash \| (.*) \|$", GUIDE, re.MULTILINE)
    said = int(cells.split(" | ")[place].split(" bytes")[0].replace(",", ""))
    found = called("plan", "deepseek-v4-flash", "--engine", *flags, "--json").json
    assert round(found["bytes_per_token"]) == said
