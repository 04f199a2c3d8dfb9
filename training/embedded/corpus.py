"""The text: the running Python's standard library as documents, split by module, and chats made from its functions.

Tests, vendored wheels and pure tables are left out (see `_is_left_out`); what is held out is listed in `recipe`.
Leaves out tokens: cutting into sequences is `sequences`' work.
"""

from __future__ import annotations

import ast
import importlib.util
import random
import re
import sysconfig
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from training.embedded.recipe import (
    ASSISTANT,
    CHAT_SHARE,
    END,
    HELD_OUT_MODULES,
    HELD_OUT_TOPICS,
    SEED,
    SYSTEM,
    USER,
)

TOPICS_PATH = "pydoc_data/topics.py"
_LEFT_OUT_FOLDERS = frozenset({"test", "tests", "idle_test", "site-packages", "lib-dynload", "__pycache__"})
_TABLE = re.compile(
    r"encodings/(cp\d+|iso8859_\d+|mac_\w+|koi8_\w|hp_roman8|kz1048|palmos|ptcp154|tis_620|aliases)\.py"
    r"|html/entities\.py|stringprep\.py|_sysconfigdata\w*[-\w]*\.py|idlelib/HISTORY\.py|keyword\.py|token\.py"
)
_MAX_FUNCTION_CHARS = 1600
_MIN_FUNCTION_CHARS = 120
_REQUESTS = (
    "Write the function {name}. {summary}",
    "Please write a Python function called {name}: {summary}",
    "How would you implement {name}? {summary}",
    "{summary} Show me the code of {name}.",
)
_SYSTEM_TEXT = "You answer with Python code."


@dataclass(frozen=True, slots=True)
class Document:
    """One text and where it is from. A chat's text holds role tokens; `path` is then its module's."""

    path: str
    text: str
    kind: Literal["code", "prose", "chat"]


@dataclass(frozen=True, slots=True)
class DocumentedFunction:
    """A function of fitting size with a docstring, dedented; `header` ends with the docstring."""

    path: str
    request: str
    header: str
    source: str


@dataclass(frozen=True, slots=True)
class Split:
    """Documents to learn from and documents kept for evaluation, sorted by path."""

    training: tuple[Document, ...]
    held_out: tuple[Document, ...]


def standard_library() -> Path:
    """Folder of the running Python's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def is_held_out(path: str) -> bool:
    """Whether a module's path (posix, below the standard library) is kept for evaluation."""
    return any(path.startswith(name) if name.endswith("/") else path == name for name in HELD_OUT_MODULES)


def read_split(root: Path) -> Split:
    """All documents below `root` (a standard library), code and prose, split by the recipe's lists; no chats.

    Raises OSError where a file cannot be read. Files that are not UTF-8 are passed over.
    """
    training: list[Document] = []
    held_out: list[Document] = []
    for document in _modules(root):
        (held_out if is_held_out(document.path) else training).append(document)
    for topic, text in _topics(root).items():
        document = Document(f"{TOPICS_PATH}:{topic}", text, "prose")
        (held_out if topic in HELD_OUT_TOPICS else training).append(document)
    return Split(tuple(training), tuple(held_out))


def chats(documents: tuple[Document, ...]) -> tuple[Document, ...]:
    """Short chats that ask for a documented function and answer with its source, `CHAT_SHARE` of the text's bytes.

    Functions are drawn without repetition by the recipe's seed; every fourth chat has two turns, every fourth opens
    with a system message.
    """
    draw = random.Random(SEED)
    functions = [function for document in documents for function in documented_functions(document)]
    draw.shuffle(functions)
    text_chars = sum(len(document.text) for document in documents)
    budget_chars = int(CHAT_SHARE / (1 - CHAT_SHARE) * text_chars)
    made: list[Document] = []
    while functions and budget_chars > 0:
        num_turns = 2 if draw.random() < 0.25 and len(functions) > 1 else 1
        turns = [functions.pop() for _ in range(num_turns)]
        opening = f"{SYSTEM}{_SYSTEM_TEXT}" if draw.random() < 0.25 else ""
        body = f"{END}".join(f"{USER}{turn.request}{ASSISTANT}{turn.source}" for turn in turns)
        made.append(Document(turns[0].path, opening + body, "chat"))
        budget_chars -= len(body)
    return tuple(made)


def documented_functions(document: Document) -> Iterator[DocumentedFunction]:
    """Functions and methods of a document of code, in the order of `ast.walk`."""
    if document.kind != "code":
        return
    try:
        tree = ast.parse(document.text)
    except SyntaxError:  # lib2to3 keeps a few files in Python 2's grammar
        return
    lines = document.text.splitlines()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        docstring = ast.get_docstring(node)
        if not docstring:
            continue
        source = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))
        if not _MIN_FUNCTION_CHARS <= len(source) <= _MAX_FUNCTION_CHARS:
            continue
        header_end = node.body[0].end_lineno
        assert header_end is not None
        header = "\n".join(source.splitlines()[: header_end - node.lineno + 1])
        summary = docstring.strip().splitlines()[0].strip()
        template = _REQUESTS[sum(source.encode()) % len(_REQUESTS)]
        request = template.format(name=node.name, summary=summary)
        yield DocumentedFunction(document.path, request, header + "\n", source + "\n")


def _modules(root: Path) -> Iterator[Document]:
    for file in sorted(root.rglob("*.py")):
        path = file.relative_to(root).as_posix()
        if _is_left_out(path):
            continue
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if text.strip():
            # The path's line lets a prompt ask for a kind of module, and heads every document alike.
            yield Document(path, f"# {path}\n{text}", "code")


def _is_left_out(path: str) -> bool:
    if path == TOPICS_PATH or _TABLE.fullmatch(path):
        return True
    return not _LEFT_OUT_FOLDERS.isdisjoint(path.split("/"))


def _topics(root: Path) -> dict[str, str]:
    file = root / TOPICS_PATH
    if not file.exists():
        return {}
    spec = importlib.util.spec_from_file_location("_topics_of_root", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    topics: dict[str, str] = module.topics
    return topics
