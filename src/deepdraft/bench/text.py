"""What the prompts are made of: endless streams of text pieces, the same for the same seed.

    prose      sentences nobody has read before (see `english`); natural enough for a drafter, and never repeating
    code       the Python standard library on this machine
    repeat     one sentence over and over: optimistic, since a drafter guesses it and a tokenizer knows it
    random     words in random order: no model expects them, so a drafter fails and figures mislead the other way
    file:PATH  a file of the user's

It knows nothing of tokens. The pieces are joined without anything between them: each brings its own spaces and
line ends. Nothing is downloaded.
"""

from __future__ import annotations

import keyword
import os
import re
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

from deepdraft.bench import english
from deepdraft.errors import UsageError

KINDS = ("prose", "code", "repeat", "random", "file:PATH")
"""What `text_source` understands."""

_SENTENCE = " The grass is green and the sky is blue, here we go, there and back again."
_PARAGRAPH_SENTENCES = (4, 9)
_RANDOM_PIECE_WORDS = 12
_LONGEST_LINE_CHARS = 400
# Tests, old grammars, help texts and tables of numbers are no code that people write.
_SKIPPED_FOLDERS = frozenset(
    {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "pydoc_data", "encodings", "turtledemo"}
)
_SMALLEST_SOURCE_BYTES = 2_000
_IDENTIFIER = re.compile(r"\b[a-z_][a-z0-9_]{3,}\b")


@dataclass(frozen=True, slots=True)
class TextSource:
    """A kind of text and where to get it."""

    kind: str
    """prose, code, repeat, random or file: the word for records and reports."""
    label: str
    """What it is, for people."""
    form: Literal["sentences", "lines", "code"]
    """sentences: a piece begins with its space; lines and code: a piece ends with its line end."""
    pieces: Callable[[int], Iterator[str]]
    """Seed -> pieces without end."""
    pieces_of_words: Callable[[int, frozenset[str]], Iterator[str] | None] | None = None
    """Seed and words -> pieces that hold these words and no others, each word with a space before it, and commas and
    full stops; None when these words are too few. The field is None where a source can't choose its words."""
    is_repetitive: bool = False
    """The text repeats itself by design."""
    is_random: bool = False
    """The words come in random order."""
    repeats_after_chars: int | None = None
    """After so many characters the same text comes again; None: never."""

    @property
    def lead(self) -> str:
        """What stands between the head of a prompt and the first piece."""
        return "" if self.form == "sentences" else "\n"

    @property
    def tail_lead(self) -> str:
        """What stands between the last piece and loose words (which bring their own spaces)."""
        return "#" if self.form == "code" else ""

    def is_clean_cut(self, before: str, after: str) -> bool:
        """Whether tokenizers see the two pieces apart from each other, so that their costs add up: at a single space
        before a word, and at a single line end."""
        if self.form == "sentences":
            return after.startswith(" ")
        return bool(before.strip() and after.strip())

    def aside(self, sentence: str) -> str:
        """A sentence as a piece of this text."""
        if self.form == "sentences":
            return f" {sentence}"
        return f"# {sentence}\n" if self.form == "code" else f"{sentence}\n"


def text_source(kind: str) -> TextSource:
    """The source that the word on the command line names (see KINDS).

    Raises UsageError for another word, a file that can't be read or is no text, and where Python came without the
    source of its library.
    """
    if kind == "prose":
        return _prose()
    if kind == "code":
        return _code(_library_paths())
    if kind == "repeat":
        return TextSource(
            kind="repeat",
            label="one sentence repeated (optimistic)",
            form="sentences",
            pieces=_repeated,
            is_repetitive=True,
            repeats_after_chars=len(_SENTENCE),
        )
    if kind == "random":
        return TextSource(
            kind="random",
            label="words in random order",
            form="sentences",
            pieces=lambda seed: _word_rows(seed, english.plain_words()),
            pieces_of_words=_word_rows_of,
            is_random=True,
        )
    if kind.startswith("file:"):
        return _file(kind.removeprefix("file:"))
    raise UsageError(f"not a kind of text: {kind!r}", hint=f"one of {', '.join(KINDS)}")


def _prose() -> TextSource:
    grammar = english.Grammar()

    def pieces(seed: int) -> Iterator[str]:
        breaks = Random(f"paragraphs {seed}")
        num_left = breaks.randint(*_PARAGRAPH_SENTENCES)
        for sentence in grammar.sentences(seed):
            if num_left:
                num_left -= 1
                yield sentence
            else:
                num_left = breaks.randint(*_PARAGRAPH_SENTENCES)
                yield f"\n\n{sentence[1:]}"

    def pieces_of_words(seed: int, words: frozenset[str]) -> Iterator[str] | None:
        chosen = english.Grammar(words)
        return chosen.sentences(seed) if chosen.is_rich else None

    return TextSource(
        kind="prose",
        label="generated English prose, never repeating",
        form="sentences",
        pieces=pieces,
        pieces_of_words=pieces_of_words,
    )


def _repeated(_seed: int) -> Iterator[str]:
    while True:
        yield _SENTENCE


def _word_rows(seed: int, words: tuple[str, ...]) -> Iterator[str]:
    rng = Random(seed)
    while True:
        yield "".join(f" {word}" for word in rng.choices(words, k=_RANDOM_PIECE_WORDS))


def _word_rows_of(seed: int, words: frozenset[str]) -> Iterator[str] | None:
    plain = tuple(word for word in english.plain_words() if word in words)
    return _word_rows(seed, plain) if len(plain) >= 100 else None


def _library_paths() -> tuple[Path, ...]:
    root = sysconfig.get_path("stdlib")
    paths: list[Path] = []
    for folder, folders, files in os.walk(root):
        # Not walked at all: an installation may keep a hundred times the library's files in site-packages.
        folders[:] = sorted(set(folders) - _SKIPPED_FOLDERS)
        paths += [Path(folder, name) for name in sorted(files) if name.endswith(".py")]
    paths = [path for path in paths if path.stat().st_size >= _SMALLEST_SOURCE_BYTES]
    if not paths:
        raise UsageError(
            "no Python source code on this machine: the standard library came without it",
            hint="--text prose, or --text file:PATH with code of your own",
        )
    return tuple(paths)


def _code(paths: tuple[Path, ...]) -> TextSource:
    """The files in an order of the seed, from a place in the first. Once all were read they come again with their
    names changed, so that the text still does not repeat itself word for word."""

    def pieces(seed: int) -> Iterator[str]:
        rng = Random(seed)
        start_frac = rng.random()
        round_index = 0
        while True:
            num_lines = 0
            for path in rng.sample(paths, len(paths)):
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
                for line in _tidy(lines[int(start_frac * len(lines)) :]):
                    num_lines += 1
                    yield _renamed(line, round_index) if round_index else line
                start_frac = 0.0
            if not num_lines:
                raise UsageError("the Python source code on this machine is empty", hint="--text prose")
            round_index += 1

    return TextSource(kind="code", label="source code of the Python standard library", form="code", pieces=pieces)


def _renamed(line: str, round_index: int) -> str:
    return _IDENTIFIER.sub(
        lambda match: match[0] if keyword.iskeyword(match[0]) else f"{match[0]}_{round_index}", line
    )


def _file(path_text: str) -> TextSource:
    path = Path(path_text).expanduser()
    if not path_text:
        raise UsageError("no path after file:", hint="--text file:PATH")
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror or error}", hint="--text file:PATH") from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no UTF-8 text", hint="convert it, or choose another file") from error
    if "\0" in text:
        raise UsageError(f"{path} is no text: it holds zero bytes", hint="choose another file")
    lines = tuple(_tidy(text.splitlines()))
    if not any(line.strip() for line in lines):
        raise UsageError(f"{path} is empty", hint="choose a file with text in it")

    def pieces(seed: int) -> Iterator[str]:
        index = Random(seed).randrange(len(lines))
        while True:
            yield lines[index]
            index = (index + 1) % len(lines)

    return TextSource(
        kind="file",
        label=f"the file {path.name}",
        form="lines",
        pieces=pieces,
        repeats_after_chars=sum(map(len, lines)),
    )


def _tidy(lines: list[str]) -> Iterator[str]:
    """The lines with their ends, very long ones cut at a space, and no two empty ones in a row."""
    was_empty = False
    for line in lines:
        line = line.rstrip()
        if line or not was_empty:
            yield from _cut(line)
        was_empty = not line


def _cut(line: str) -> Iterator[str]:
    while len(line) > _LONGEST_LINE_CHARS:
        at = line.rfind(" ", 1, _LONGEST_LINE_CHARS)
        at = at if at > 0 else _LONGEST_LINE_CHARS
        yield f"{line[:at]}\n"
        line = line[at:].lstrip()
    yield f"{line}\n"
