"""Flags of drafting: read once, refused where they would have no effect, and written as words for a child."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.cli.drafting import (
    SPECULATION_MODES,
    add_drafting_flags,
    check_embedded_words,
    drafting_words,
    embedded_server,
)
from deepdraft.cli.main import Parser
from deepdraft.errors import UsageError
from deepdraft.infer.control import decision


def read(*words: str) -> argparse.Namespace:
    parser = Parser(prog="test")
    add_drafting_flags(parser)
    return parser.parse_args(words)


def test_what_is_not_said_is_no_word() -> None:
    assert set(vars(read()).values()) == {None}
    assert drafting_words(read()) == ()
    assert drafting_words(argparse.Namespace()) == ()  # a command without these flags


def test_tokens_are_written_as_numbers() -> None:
    words = drafting_words(read("--draft-window", "1k", "--drafter", "embedded", "--simulate-acceptance-len", "2.50"))
    assert words == ("--drafter", "embedded", "--draft-window", "1000", "--simulate-acceptance-len", "2.5")


MODE = st.none() | st.sampled_from(SPECULATION_MODES)
NUMBER = st.none() | st.integers(1, 10**6)


@given(NUMBER, NUMBER, st.booleans(), NUMBER, NUMBER, st.none() | st.integers(4, 400).map(lambda n: n / 4), MODE)
def test_words_read_again_say_the_same(budget, top_k, is_spine_first, window, sink, simulated, mode) -> None:
    flags = {
        "--speculation": mode,
        "--tree-budget": budget,
        "--tree-top-k": top_k,
        "--draft-window": window,
        "--draft-sink": sink,
        "--simulate-acceptance-len": simulated,
    }
    said = [word for flag, value in flags.items() if value is not None for word in (flag, str(value))]
    said += ["--spine-first"] * is_spine_first
    words = drafting_words(read("--drafter", "/some where/drafter", *said))
    assert vars(read(*words)) == vars(read("--drafter", "/some where/drafter", *said))
    assert drafting_words(read(*words)) == words


def test_modes_are_those_of_the_engine() -> None:
    assert decision.SPECULATION_MODES == SPECULATION_MODES
    with pytest.raises(UsageError, match="--speculation is for drafting, and there is no drafter"):
        drafting_words(read("--speculation", "never"))


def test_a_server_in_one_word() -> None:
    assert embedded_server("embedded") == ("embedded", ())
    assert embedded_server("embedded llamacpp") == ("embedded llamacpp", ())
    assert embedded_server("embedded deepdraft --drafter ngram") == ("embedded", ("--drafter", "ngram"))
    quoted = embedded_server("embedded --drafter '/some where/drafter' --spine-first")
    assert quoted == ("embedded", ("--drafter", "/some where/drafter", "--spine-first"))


@pytest.mark.parametrize(("engine", "message"), [(None, "is for the embedded server"), ("llamacpp", "not llamacpp")])
def test_they_are_for_our_own_embedded_server(engine, message) -> None:
    check_embedded_words((), engine)
    check_embedded_words(("--drafter", "ngram"), "deepdraft")
    with pytest.raises(UsageError, match=message):
        check_embedded_words(("--drafter", "ngram"), engine)
