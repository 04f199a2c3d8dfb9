"""The report as plain text in at most 80 columns, without colour: each run's table, then what was handed in."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from deepdraft.report.document import (
    Block,
    Bullets,
    Drawing,
    Heading,
    Paragraph,
    Table,
    closing_blocks,
    findings_blocks,
    law_lines,
)
from deepdraft.report.markup import visible
from deepdraft.report.subject import Subject
from deepdraft.report.table import results_table
from deepdraft.report.view import Views

_WIDTH = 80


def report_text(subjects: Sequence[Subject], views: Views) -> str:
    """The whole report."""
    parts: list[str] = []
    for subject in subjects:
        if len(subjects) > 1:
            parts.append(_block(Heading(level=2, text=subject.name)))
        parts.append(results_table(subject.run, _WIDTH).rstrip("\n"))
    blocks: list[Block] = []
    laws = law_lines(subjects, views)
    if laws:
        blocks += [Heading(level=2, text="Laws"), Bullets(lines=laws)]
    blocks += [*findings_blocks(subjects, views), *closing_blocks(subjects, views)]
    return "\n\n".join([*parts, *(_block(block) for block in blocks)]) + "\n"


def _block(block: Block) -> str:
    match block:
        case Heading():
            text = _wrapped(block.text)
            rule = "=" if block.level < 3 else "-"
            return f"{text}\n{rule * max(len(line) for line in text.splitlines())}" if text else ""
        case Paragraph():
            return _wrapped(block.text)
        case Bullets():
            return "\n".join(_wrapped(line, "- ", "  ") for line in block.lines)
        case Table():
            return _table(block)
        case Drawing():  # text has no drawings; its figures are in the tables
            return ""


def _table(table: Table) -> str:
    """The last column takes what room is left and is wrapped."""
    rows = [tuple(visible(cell) for cell in row) for row in (table.heads, *table.rows)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(table.heads) - 1)]
    room = max(_WIDTH - sum(widths) - 2 * len(widths), 20)
    lines = []
    for row in rows:
        head = "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=False))
        )
        wrapped = textwrap.wrap(row[-1], room) or [""]
        lines.append(f"{head}  {wrapped[0]}".rstrip())
        lines += [" " * (len(head) + 2) + more for more in wrapped[1:]]
    return "\n".join([_wrapped(table.caption), *lines])


def _wrapped(text: str, first: str = "", rest: str = "") -> str:
    line = " ".join(visible(text).split())
    return "\n".join(
        textwrap.wrap(line, _WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    )
