from __future__ import annotations

import contextlib
import io
import os
import re
import time

import pytest

from deepdraft.bench.progress import Progress, left_text, remaining_s


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(text: str) -> list[str]:
    """The lines a terminal shows in the end, and the one that stands last."""
    lines = []
    for line in text.split("\n"):
        screen = ""
        for part in line.split("\r"):
            screen = part + screen[len(part) :]
        lines.append(screen.rstrip())
    return lines


def test_a_line_is_rewritten_on_a_terminal() -> None:
    stream = Terminal()
    progress = Progress(num_trials=3, stream=stream)
    progress.begin("1,000 tokens, repeat 1", 90.0)
    time.sleep(0.25)
    progress.tick("streaming, 12 events")
    (line,) = shown(stream.getvalue())
    assert re.fullmatch(r"\[0/3\] 1,000 tokens, repeat 1: streaming, 12 events, [01] s, about (90|89) s left", line)
    progress.done()
    progress.say("a result")
    progress.close()
    assert shown(stream.getvalue()) == ["a result", ""]


def test_a_line_is_never_wider_than_the_terminal(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    progress = Progress(num_trials=1, stream=stream)
    progress.begin("something with a rather long name that goes on and on", None)
    assert max(map(len, stream.getvalue().split("\r"))) <= 39


def test_ticks_are_few() -> None:
    stream = Terminal()
    progress = Progress(num_trials=1, stream=stream)
    progress.begin("x", None)
    size = len(stream.getvalue())
    for _ in range(1000):
        progress.tick("y")
    assert len(stream.getvalue()) < size + 200


def test_elsewhere_a_line_now_and_then_says_that_it_waits() -> None:
    stream = io.StringIO()
    progress = Progress(num_trials=2, stream=stream, plain_tick_s=0.05)
    progress.begin("185,000 tokens, repeat 1", None)
    assert stream.getvalue() == ""
    time.sleep(0.06)
    progress.tick("waiting for the first token")
    assert stream.getvalue() == "[0/2] 185,000 tokens, repeat 1: waiting for the first token, 0 s\n"


def test_silence() -> None:
    progress = Progress(num_trials=1, stream=None)
    progress.say("x")
    progress.begin("x", 1.0)
    progress.tick("x")
    progress.close()


def test_a_reader_that_went_away_does_not_end_the_sweep() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        progress = Progress(num_trials=1, stream=stream)
        progress.say("nobody reads this")
        progress.say("nor this")
        assert progress.stream is None
        with contextlib.suppress(BrokenPipeError):
            stream.close()


def test_what_must_not_be_said_is_not() -> None:
    stream = io.StringIO()
    progress = Progress(num_trials=1, stream=stream, hidden=lambda text: text.replace("s3cret", "*"))
    progress.say("the server says: bad key s3cret")
    assert stream.getvalue() == "the server says: bad key *\n"


@pytest.mark.parametrize(
    ("left_s", "text"),
    [
        (None, ""),
        (-5.0, ""),
        (0.9, ""),
        (1.2, ", about 1 s left"),
        (99.4, ", about 99 s left"),
        (186.0, ", about 3.1 min left"),
        (7200.0, ", about 2 h left"),
    ],
)
def test_left_text(left_s, text) -> None:
    assert left_text(left_s) == text


class TestRemaining:
    def test_nothing_seen_nothing_said(self) -> None:
        assert remaining_s([(1000, 1)], {}) is None

    def test_points_that_were_seen(self) -> None:
        assert remaining_s([(1000, 1), (1000, 1), (2000, 1)], {(1000, 1): [1.0, 3.0], (2000, 1): [5.0]}) == 9.0

    def test_longer_ones_grow_somewhat_faster_than_in_proportion(self) -> None:
        assert remaining_s([(16_000, 1)], {(1000, 1): [1.0]}) == pytest.approx(32.0)

    def test_and_as_was_seen_once_two_lengths_were(self) -> None:
        assert remaining_s([(8000, 1)], {(2000, 1): [1.0], (4000, 1): [4.0]}) == pytest.approx(16.0)
        assert remaining_s([(8000, 1)], {(2000, 1): [1.0], (4000, 1): [2.0]}) == pytest.approx(4.0)

    def test_never_faster_than_with_the_square_nor_backwards(self) -> None:
        assert remaining_s([(8000, 1)], {(2000, 1): [1.0], (4000, 1): [100.0]}) == pytest.approx(400.0)
        assert remaining_s([(8000, 1)], {(2000, 1): [5.0], (4000, 1): [1.0]}) == pytest.approx(1.0)

    def test_shorter_ones_shrink_in_proportion(self) -> None:
        assert remaining_s([(1000, 1)], {(4000, 1): [8.0]}) == pytest.approx(2.0)

    def test_the_most_alike_is_taken(self) -> None:
        seen = {(1000, 1): [1.0], (1000, 4): [2.0], (100_000, 1): [1000.0]}
        assert remaining_s([(2000, 4)], seen) == pytest.approx(2.0 * 2**1.5)
        assert remaining_s([(1000, 8)], seen) == pytest.approx(4.0)

    def test_nothing_left(self) -> None:
        assert remaining_s([], {(1000, 1): [1.0]}) == 0.0
