"""The report as a LaTeX document that pdflatex compiles: booktabs tables, pgfplots figures.

Needs the packages booktabs, geometry, longtable and pgfplots; takes lmodern where it is. Text of a results file is
escaped: no command of it runs, and a character that pdflatex's fonts lack is printed as its code point.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepdraft.report.document import Block, Bullets, Drawing, Heading, Paragraph, Table, document
from deepdraft.report.latex_chart import chart_picture
from deepdraft.report.latex_escape import latex_escaped
from deepdraft.report.subject import Subject
from deepdraft.report.view import Views

_HEAD = r"""\documentclass[a4paper,10pt]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{\IfFileExists{mathptmx.sty}{\usepackage{mathptmx}}{}}
\usepackage[margin=22mm]{geometry}
\usepackage{booktabs}
\usepackage{longtable}
\usepackage{pgfplots}
\pgfplotsset{compat=1.16}
\definecolor{series0}{HTML}{0B5CAD}
\definecolor{series1}{HTML}{C2410C}
\definecolor{series2}{HTML}{1C7C54}
\definecolor{series3}{HTML}{8B3FA0}
\definecolor{series4}{HTML}{A16207}
\definecolor{series5}{HTML}{0E7490}
\definecolor{series6}{HTML}{BE185D}
\definecolor{series7}{HTML}{525B66}
\setlength{\parindent}{0pt}
\setlength{\parskip}{4pt}
\emergencystretch=3em
\begin{document}
"""
_SECTIONS = {1: r"\section*", 2: r"\subsection*", 3: r"\subsubsection*"}


def latex_text(subjects: Sequence[Subject], views: Views) -> str:
    """The whole document."""
    blocks = "\n\n".join(_block(block) for block in document(subjects, views))
    return f"{_HEAD}{blocks}\n\\end{{document}}\n"


def _block(block: Block) -> str:
    match block:
        case Heading():
            return f"{_SECTIONS[block.level]}{{{latex_escaped(block.text)}}}"
        case Paragraph():
            return latex_escaped(block.text)
        case Bullets():
            lines = "\n".join(rf"\item {{}}{latex_escaped(line)}" for line in block.lines)
            return f"\\begin{{itemize}}\\small\n{lines}\n\\end{{itemize}}"
        case Table():
            return _table(block)
        case Drawing():
            notes = [*(one.label for one in block.chart.crossings), *block.chart.notes]
            caption = latex_escaped(block.chart.title)
            drawn = f"{chart_picture(block.chart)}\n\n\\textbf{{{caption}}}"
            figure = f"\\begin{{minipage}}{{\\linewidth}}\\centering\n{drawn}\n\\end{{minipage}}"
            return figure + ("\n\n" + _block(Bullets(lines=tuple(notes))) if notes else "")


def _table(table: Table) -> str:
    num = len(table.heads)
    last = r"p{0.4\linewidth}" if table.is_last_words else "r"
    columns = "l" + "r" * (num - 2) + last if num > 1 else "l"
    rows = [" & ".join(rf"\footnotesize {latex_escaped(cell)}" for cell in row) + r" \\" for row in table.rows]
    heads = " & ".join(rf"\scriptsize {latex_escaped(head)}" for head in table.heads) + r" \\"
    body = "\n".join([r"\toprule", heads, r"\midrule", r"\endhead", *rows, r"\bottomrule"])
    narrow = r"{\setlength{\tabcolsep}{3pt}" + "\n"
    return f"{narrow}\\begin{{longtable}}{{@{{}}{columns}@{{}}}}\n{body}\n\\end{{longtable}}}}"
