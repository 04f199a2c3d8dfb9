"""The unit: systemd's own rules of quoting undone give the words back, and systemd itself accepts it."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planner.deployment import sglang

from deepdraft.planner.launch import Launch, launch
from deepdraft.planner.systemd import quoted, unit_text

WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc"), include_characters="\n\t"), max_size=20)
STABLE = sglang(mem_fraction_static=0.93, chunked_prefill_size=4096, expandable_segments=True)


def read_word(text: str, *, is_command: bool = True) -> str:
    """What systemd makes of one quoted word, by systemd.syntax(7): quotes, C escapes, specifiers, variables."""
    if text.startswith('"'):
        assert text.endswith('"')
        inner, found, place = text[1:-1], "", 0
        while place < len(inner):
            if inner[place] == "\\":
                found += {"n": "\n", "t": "\t"}.get(inner[place + 1], inner[place + 1])
                place += 2
                continue
            assert inner[place] != '"'
            found += inner[place]
            place += 1
        text = found
    else:
        assert re.fullmatch(r"\S+", text)
        assert not set(text) & set("\"'\\;")
    assert not re.search(r"(?<!%)(%%)*%(?!%)", text)
    text = text.replace("%%", "%")
    return text.replace("$$", "$") if is_command else text


@given(word=WORDS)
def test_every_word_comes_back(word) -> None:
    assert read_word(quoted(word)) == word
    assert read_word(quoted(word, is_command=False), is_command=False) == word
    assert "\n" not in quoted(word)


@pytest.mark.parametrize("word", ["/models/Kimi-K2.6", "--tp-size", "0.93", "a,b:c=d@e+f"])
def test_plain_words_stay_plain(word) -> None:
    assert quoted(word) == word


def test_nul_has_no_place_in_a_unit() -> None:
    with pytest.raises(ValueError, match="NUL"):
        quoted("a\0b")


def test_the_unit() -> None:
    text = unit_text(launch(STABLE, "/models/Kimi K2.6", drafter="d", drafter_kind="dflash"), "Kimi, 100 % planned")
    lines = text.splitlines()
    assert "Description=Kimi, 100 %% planned" in lines
    assert "Environment=PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in lines
    start = text.split("ExecStart=")[1].split("\nRestart=")[0]
    assert start.startswith('/usr/bin/env python -m sglang.launch_server \\\n  --model-path "/models/Kimi K2.6" \\\n')
    assert all(line.endswith("\\") for line in start.splitlines()[:-1])
    assert not start.endswith("\\")
    # Weights take minutes; and a setting that runs out of memory must not load them for ever.
    assert "TimeoutStartSec=1800" in lines
    assert "StartLimitBurst=3" in lines


def test_a_command_of_one_line() -> None:
    assert "ExecStart=/usr/bin/env true\nRestart=" in unit_text(Launch(words=("true",)), "x")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_accepts_it(tmp_path) -> None:
    unit = tmp_path / "server.service"
    command = launch(STABLE, '/models/a "b" $HOME %h \\ it\'s', drafter="d", drafter_kind="dflash")
    unit.write_text(unit_text(command, "a 100 % plan", directory="/"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if "server.service" in line]
    assert not complaints
