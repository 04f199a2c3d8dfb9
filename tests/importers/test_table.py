"""Tables typed in by hand: what is read, and that a typing error never loses a figure silently."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deepdraft.errors import ResultsError
from deepdraft.records import Run

TABLE = """
[source]
tool = "a paper"
unknowns = ["the text"]
[[source.note]]
topic = "memory"
message = "0.93"
[server]
engine = "sglang"
speculation = "yes"
kv_pool_tokens = "205k"
settings = { tp_size = 8 }
[[point]]
asked_context_len = "128k"
context_len = "82,845"
decode_tok_s = ["55.1", "56.72"]
step_s = { said = "8.4 ms", doubt = "per token?" }
accepted_len = "3"
acceptance = { source = "log", num_steps = 34, accepted_at_depth = [10, 4] }
"""


def test_what_a_table_carries(from_text: Callable[[str], Run]) -> None:
    run = from_text(TABLE)
    (line,) = run.reported
    assert (line.asked_context_len, line.context_len) == (128_000, 82_845)
    assert line.figures["decode_tok_s"].values == (55.1, 56.72)
    assert line.figures["decode_tok_s"].half_width == pytest.approx(0.05)  # the coarser of the two
    assert line.figures["step_s"].doubt == "per token?"
    assert line.figures["accepted_len"].values == (3.0,)
    assert line.acceptance is not None
    assert line.acceptance.accepted_at_depth == (10, 4)
    server = run.header.capabilities
    assert (server.engine, server.speculation, server.kv_pool_tokens) == ("sglang", "yes", 205_000)
    assert run.header.source is not None
    assert run.header.source.unknowns == ("the text",)
    assert [(note.topic, note.message) for note in run.notes] == [("memory", "0.93")]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("decode_tok_s =", "decode_toks =", "decode_toks"),
        ("doubt =", "doubts =", "doubts"),
        ("num_steps", "steps", "steps"),
        ('engine = "sglang"', 'motor = "sglang"', "motor"),
        ('speculation = "yes"', 'speculation = "on"', "on"),
        ('"8.4 ms"', '"8.4"', "unit"),
        ('accepted_len = "3"', "accepted_len = 3", "in quotes"),
        ("num_steps = 34", 'num_steps = "34"', "acceptance"),
        ('source = "log", ', "", "say its source"),
        ('asked_context_len = "128k"\ncontext_len = "82,845"', "", "neither"),
        ("[[point]]", '[[point]]\nis_cold = "yes"', "point 1"),
        ("[server]", "[server", "not TOML"),
    ],
)
def test_mistakes_are_named(from_text: Callable[[str], Run], old: str, new: str, message: str) -> None:
    assert old in TABLE
    with pytest.raises(ResultsError, match=message):
        from_text(TABLE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('unknowns = ["the text"]', 'unknowns = "the text"', "list of sentences"),
        ('topic = "memory"\n', "", "topic and a message"),
        ("settings = { tp_size = 8 }", "settings = 8", "settings"),
        ('engine = "sglang"', "engine = 8", "engine"),
        ("[[point]]\n", '[[point]]\nremarks = "one"\n', "list of sentences"),
    ],
)
def test_wrong_types_are_named_too(from_text: Callable[[str], Run], old: str, new: str, message: str) -> None:
    assert old in TABLE
    with pytest.raises(ResultsError, match=message):
        from_text(TABLE.replace(old, new))
