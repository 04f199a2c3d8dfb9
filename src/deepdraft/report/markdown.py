"""The report as Markdown (GitHub's flavour). Text of a results file is escaped: it becomes no markup or link."""

from __future__ import annotations

import re
from collections.abc import Sequence

from deepdraft.report.document import Block, Bullets, Drawing, Heading, Paragraph, Table, chart_table, document
from deepdraft.report.markup import visible
from deepdraft.report.subject import Subject
from deepdraft.report.view import Views

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~$])")
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_LINE_START = re.compile(r"^(\d+)([.)])|^(-)(?=\s|$|-)")


def markdown_text(subjects: Sequence[Subject], views: Views) -> str:
    """The whole report."""
    return "\n\n".join(_block(block) for block in document(subjects, views)) + "\n"


def plain(text: str) -> str:
    """Text that Markdown shows as it is, in one line."""
    line = " ".join(visible(text).split())
    line = _SPECIAL.sub(r"\\\1", line.translate(_HTML))
    return _LINE_START.sub(lambda match: f"{match[1]}\\{match[2]}" if match[1] else f"\\{match[3]}", line)


def _block(block: Block) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {plain(block.text)}"
        case Paragraph():
            return plain(block.text)
        case Bullets():
            return "\n".join(f"- {plain(line)}" for line in block.lines)
        case Table():
            return _table(block)
        case Drawing():
            table = _table(chart_table(block.chart))
            parts = [f"### {plain(block.chart.title)}", table]
            notes = [*(one.label for one in block.chart.crossings), *block.chart.notes]
            return "\n\n".join([*parts, "\n".join(f"- {plain(note)}" for note in notes)] if notes else parts)


def _table(table: Table) -> str:
    num = len(table.heads)
    rules = [":--" if place == 0 or (table.is_last_words and place == num - 1) else "--:" for place in range(num)]
    rows = [table.heads, *table.rows]
    lines = ["| " + " | ".join(plain(cell) for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "|".join(rules) + "|", *lines[1:]])
