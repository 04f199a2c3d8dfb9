"""Text sources: endless, the same for the same seed, and honest about what they are."""

from __future__ import annotations

import ast
import sysconfig
import zlib
from collections import Counter
from itertools import islice, pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepdraft.bench import english
from deepdraft.bench.needle import WORDS
from deepdraft.bench.text import TextSource, text_source
from deepdraft.errors import UsageError

BUILT_IN = ("prose", "code", "repeat", "random")


def chars_of(source: TextSource, num_chars: int, seed: int = 1) -> str:
    taken: list[str] = []
    length = 0
    for piece in source.pieces(seed):
        taken.append(piece)
        length += len(piece)
        if length >= num_chars:
            return "".join(taken)[:num_chars]
    raise AssertionError("a source ended")


def zlib_frac(text: str) -> float:
    raw = text.encode()
    return len(zlib.compress(raw, 9)) / len(raw)


def num_repeated(text: str, num_words: int) -> int:
    words = text.split()
    rows = Counter(tuple(words[at : at + num_words]) for at in range(len(words) - num_words + 1))
    return sum(count - 1 for count in rows.values())


def docstrings(num_chars: int) -> str:
    """Prose that people wrote, found on every machine with Python on it."""
    found: list[str] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8", errors="replace"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node)
                if text and len(text) > 400:
                    found.append(" ".join(text.split()))
        if sum(map(len, found)) > num_chars:
            return " ".join(found)[:num_chars]
    pytest.skip("this Python has too little documentation in it")


@pytest.mark.parametrize("kind", BUILT_IN)
def test_a_seed_decides_the_text(kind: str) -> None:
    one, again, other = (list(islice(text_source(kind).pieces(seed), 200)) for seed in (5, 5, 6))
    assert one == again
    assert (one == other) == (kind == "repeat")


@pytest.mark.parametrize("kind", BUILT_IN)
def test_pieces_are_short_and_join_by_themselves(kind: str) -> None:
    source = text_source(kind)
    pieces = list(islice(source.pieces(3), 2_000))
    assert max(map(len, pieces)) <= 402
    if source.form == "sentences":
        assert all(piece[0].isspace() and not piece[-1].isspace() for piece in pieces)
        assert pieces[0].startswith(" ")
    else:
        assert all(piece.endswith("\n") and "\n" not in piece[:-1] for piece in pieces)
        assert not any(one == other == "\n" for one, other in pairwise(pieces))


def test_each_kind_says_what_it_is() -> None:
    claims = {kind: (s.is_repetitive, s.is_random) for kind in BUILT_IN for s in [text_source(kind)]}
    assert claims == {
        "prose": (False, False),
        "code": (False, False),
        "repeat": (True, False),
        "random": (False, True),
    }
    assert "optimistic" in text_source("repeat").label
    assert "random" in text_source("random").label


def test_prose_does_not_repeat_itself() -> None:
    text = " ".join(chars_of(text_source("prose"), 400_000).split()[:50_000])
    assert len(text.split()) == 50_000
    assert num_repeated(text, 8) == 0


def test_prose_is_about_as_hard_to_compress_as_what_people_write() -> None:
    num_chars = 200_000
    prose = zlib_frac(chars_of(text_source("prose"), num_chars))
    assert prose > 0.95 * zlib_frac(docstrings(num_chars))
    assert zlib_frac(chars_of(text_source("repeat"), num_chars)) < 0.02


def test_prose_of_two_seeds_shares_no_eight_words() -> None:
    one, other = (chars_of(text_source("prose"), 150_000, seed) for seed in (1, 2))
    assert num_repeated(f"{one}\n{other}", 8) == 0


def test_prose_never_tells_a_needle() -> None:
    words = {word.lower() for word in english.vocabulary()}
    assert not words & {word.lower() for word in WORDS}
    assert not words & {"secret", "magic"}


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**64), st.integers(0, 2**64))
def test_prose_keeps_to_the_words_chosen(choice_seed: int, seed: int) -> None:
    rng = Random(choice_seed)
    words = frozenset(word for word in english.vocabulary() if rng.random() < 0.9)
    source = text_source("prose")
    assert source.pieces_of_words is not None
    pieces = source.pieces_of_words(seed, words)
    assert pieces is not None
    text = "".join(islice(pieces, 50))
    assert text.startswith(" ")
    assert set(text.replace(",", "").replace(".", "").split()) <= words
    assert text.count(" ") == len(text.split())


def test_too_few_words_give_no_prose() -> None:
    source = text_source("prose")
    assert source.pieces_of_words is not None
    assert source.pieces_of_words(1, frozenset(english.vocabulary()[:50])) is None
    with pytest.raises(ValueError, match="too few words"):
        next(english.Grammar(frozenset()).sentences(1))


def test_code_is_python_and_no_test_of_it(tmp_path: Path) -> None:
    text = chars_of(text_source("code"), 300_000)
    assert text.count("\n    def ") > 50
    assert text.count("import ") > 20
    assert num_repeated(text, 40) < 1_500  # licences and tables repeat a little; code as such does not
    assert "import unittest" not in text


def test_code_goes_on_with_other_names_once_all_was_read() -> None:
    pieces = text_source("code").pieces(1)
    # More lines than the library has, so that all of it passed.
    first_round = Counter(islice(pieces, 260_000))
    later = [piece for piece in islice(pieces, 20_000) if len(piece) > 60]
    assert len(later) > 1_000
    assert sum(piece in first_round for piece in later) < 0.1 * len(later)


def test_a_file_comes_from_a_place_of_the_seed_and_wraps(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    lines = [f"line {index} says {index * index}" for index in range(40)]
    path.write_text("\n".join(lines), encoding="utf-8")
    source = text_source(f"file:{path}")
    pieces = list(islice(source.pieces(9), 100))
    start = lines.index(pieces[0].rstrip())
    assert [piece.rstrip() for piece in pieces] == [lines[(start + index) % 40] for index in range(100)]
    assert len({next(source.pieces(seed)) for seed in range(50)}) > 10
    assert source.repeats_after_chars == sum(len(line) + 1 for line in lines)
    assert not source.is_repetitive
    assert "log.txt" in source.label


def test_long_lines_are_cut_at_spaces_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    text = " ".join(f"word{index}" for index in range(2_000)) + "\n" + "x" * 1_000
    path.write_text(text, encoding="utf-8")
    source = text_source(f"file:{path}")
    num_pieces = 0
    length = 0
    while length < (source.repeats_after_chars or 0):
        length = len("".join(islice(source.pieces(0), num_pieces)))
        num_pieces += 1
    pieces = list(islice(source.pieces(0), num_pieces - 1))
    assert max(map(len, pieces)) <= 401
    assert sorted("".join(pieces).split()) != []
    assert set(text.split()) - {"x" * 1_000} <= set("".join(pieces).split())


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "is empty"), (b" \n\n", "is empty"), (b"\xff\xfe\x00a", "no UTF-8"), (b"a\0b", "zero bytes")],
)
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "it"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=says):
        text_source(f"file:{path}")


def test_a_missing_file_a_folder_and_an_unknown_kind_are_refused(tmp_path: Path) -> None:
    for kind in (f"file:{tmp_path / 'no'}", f"file:{tmp_path}", "file:", "poetry"):
        with pytest.raises(UsageError) as caught:
            text_source(kind)
        assert caught.value.hint
    with pytest.raises(UsageError, match="not a kind of text: 'poetry'"):
        text_source("poetry")
