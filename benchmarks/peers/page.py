"""The page that the figures stand on, and how a table of them is written.

A section stands between two marks in the page, so that a part that is run again replaces its own and no other.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from .client import Deepdraft

OURS = Deepdraft().name
_HEAD = """\
# What the client costs and what it gets wrong, beside its peers

Written by `python -m benchmarks.peers --write`; `benchmarks/README.md` says how to run it. Every client runs as a
whole process, as its users run it, against the same server of known truth (`deepdraft simulate`) on the same machine;
the truth is the server's own stamps of the same requests, so the server's jitter is nobody's error.
"""


def updated(page: str, sections: Mapping[str, str]) -> str:
    """The page with these sections put in the place of their earlier selves, or behind the others."""
    page = page or _HEAD
    for part, text in sections.items():
        begin, end = f"<!-- {part} -->", f"<!-- end of {part} -->"
        section = f"{begin}\n{text.strip()}\n{end}"
        if begin in page:
            before, after = page[: page.index(begin)], page[page.index(end) + len(end) :]
            page = before + section + after
        else:
            page = f"{page.rstrip()}\n\n{section}\n"
    return page


def write(path: Path, sections: Mapping[str, str]) -> None:
    """Put the sections into the page, which need not exist yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(updated(path.read_text() if path.exists() else "", sections))


def row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def rule(num_columns: int) -> str:
    return "|" + "---|" * num_columns


def spread(values: Sequence[float], form: str = ".0f") -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def doubted(text: str, is_wrong: bool) -> str:
    return f"**{text}**" if is_wrong else text


def named(name: str) -> str:
    return f"`{name}`"
