"""What is read, what is held out, and that nothing held out is learnt from."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from training.embedded.corpus import (
    Document,
    Split,
    chats,
    documented_functions,
    is_held_out,
    read_split,
    standard_library,
)
from training.embedded.recipe import ASSISTANT, CHAT_SHARE, END, HELD_OUT_MODULES, HELD_OUT_TOPICS, USER

SHINGLE_LINES = 8
# dataclasses.py repeats six lines of reprlib.py; nothing longer is shared.
NUM_CHAT_DOCUMENTS = 25


@pytest.fixture(scope="module")
def split() -> Split:
    """The running Python's own split."""
    return read_split(standard_library())


def test_paths_are_on_one_side(split: Split) -> None:
    training = {document.path for document in split.training}
    held_out = {document.path for document in split.held_out}
    assert not training & held_out
    assert not [path for path in training if is_held_out(path)]
    assert all(is_held_out(document.path) for document in split.held_out if document.kind == "code")


def test_every_name_of_the_lists_exists(split: Split) -> None:
    paths = [document.path for document in split.held_out]
    for name in HELD_OUT_MODULES:
        assert [path for path in paths if path.startswith(name)], name
    for topic in HELD_OUT_TOPICS:
        assert f"pydoc_data/topics.py:{topic}" in paths


def test_held_out_share(split: Split) -> None:
    sizes = [sum(len(document.text) for document in part) for part in (split.training, split.held_out)]
    assert 0.04 < sizes[1] / sum(sizes) < 0.07


def test_no_held_out_content_in_training(split: Split) -> None:
    """No eight lines in a row of a held-out document, blank lines apart, stand in a document that is learnt from."""
    learnt = {shingle for document in split.training for shingle in _shingles(document)}
    leaks = {document.path for document in split.held_out for shingle in _shingles(document) if shingle in learnt}
    assert not leaks


def test_chats_are_made_of_training_functions(split: Split) -> None:
    made = chats(split.training[:NUM_CHAT_DOCUMENTS])
    sources = {
        function.source
        for document in split.training[:NUM_CHAT_DOCUMENTS]
        for function in documented_functions(document)
    }
    for chat in made:
        assert not is_held_out(chat.path)
        turns = chat.text.split(USER)[1:]
        answers = [turn.split(ASSISTANT)[1].removesuffix(END) for turn in turns]
        assert answers and all(answer in sources for answer in answers)
        assert all(ast.parse(answer) for answer in answers)


def test_chats_are_the_same_each_time_and_fill_their_share(split: Split) -> None:
    documents = split.training[:NUM_CHAT_DOCUMENTS]
    made = chats(documents)
    assert made == chats(documents)
    chat_chars = sum(len(chat.text) for chat in made)
    share = chat_chars / (chat_chars + sum(len(document.text) for document in documents))
    assert share == pytest.approx(CHAT_SHARE, abs=0.03)


def test_tests_and_tables_are_left_out(tmp_path: Path) -> None:
    kept = ["one.py", "encodings/punycode.py", "json/decoder.py"]
    left_out = ["test/test_one.py", "idlelib/idle_test/a.py", "encodings/cp037.py", "site-packages/a.py"]
    for name in kept + left_out:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    split = read_split(tmp_path)
    assert sorted(document.path for document in (*split.training, *split.held_out)) == sorted(kept)


def test_a_document_opens_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("x = 1\n")
    assert read_split(tmp_path).training == (Document("one.py", "# one.py\nx = 1\n", "code"),)


def test_a_file_that_is_not_utf8_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_bytes(b"x = '\xff'\n")
    assert read_split(tmp_path) == Split((), ())


def test_a_function_is_dedented_and_its_header_ends_with_the_docstring() -> None:
    text = 'class A:\n    def f(self):\n        """Say one.\n\n        More.\n        """\n' + "        x = 1\n" * 12
    (function,) = documented_functions(Document("a.py", text, "code"))
    assert function.source.startswith('def f(self):\n    """Say one.')
    assert function.header.endswith('More.\n    """\n')
    assert "f" in function.request and "Say one." in function.request
    assert ast.parse(function.source)


def _shingles(document: Document) -> set[tuple[str, ...]]:
    lines = [line.strip() for line in document.text.splitlines() if line.strip()]
    return {tuple(lines[start : start + SHINGLE_LINES]) for start in range(len(lines) - SHINGLE_LINES + 1)}
