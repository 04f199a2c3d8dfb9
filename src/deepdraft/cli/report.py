"""`deepdraft report FILE...`: results files as a document, a page, a picture, or data."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepdraft.cli.output import write_out
from deepdraft.errors import ResultsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deepdraft.report.subject import Subject
    from deepdraft.report.view import Views

FORMATS = ("text", "md", "csv", "json", "latex", "html", "png", "svg", "pdf")
_BY_SUFFIX = {"txt": "text", "markdown": "md", "tex": "latex", "htm": "html"}
_PLOTS = ("png", "svg", "pdf")
_BINARY = ("png", "pdf")


def add_command(commands: Any) -> None:
    """Add `report` to the command line."""
    parser = commands.add_parser(
        "report",
        help="make a page, a document or a picture of results files",
        description="Makes a report of results files: the table, charts, laws, findings, guards, environment and "
        "definitions. Several files are shown side by side, each compared with the first. Laws, findings and "
        "comparisons need the extra `analysis`, pictures the extra `report`; the HTML page needs neither and loads "
        "nothing from the network.",
    )
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="results files; the first is the baseline"
    )
    parser.add_argument("--format", choices=FORMATS, help="by default what --out ends with, else text")
    parser.add_argument("--out", type=Path, metavar="PATH", help="where to write it; by default standard output")
    parser.add_argument(
        "--model", type=Path, metavar="CONFIG", help="the model's config.json, for floors and findings"
    )
    parser.add_argument("--device", metavar="NAME", help="a name (H100) or bandwidth=1.8TB/s,flops=500TFLOP/s")
    parser.add_argument("--tp", type=int, metavar="N", help="ranks that share the model (tensor parallel)")
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Write the report. Raises UsageError for options that don't go together, ResultsError for files that can't be
    read or written."""
    form = _format(namespace.format, namespace.out)
    out: Path | None = namespace.out
    if out is None and form in _BINARY:
        raise UsageError(f"{form} is no text: it can't go to standard output", hint=f"--out report.{form}")
    if out is not None and any(_is_same(out, path) for path in namespace.files):
        raise UsageError(f"--out {out} is one of the results files, and would be overwritten")
    subjects = _subjects(namespace.files)
    views = _views(namespace, subjects, form)
    if out is None:
        write_out(_text(form, subjects, views))
        return 0
    content = _picture(form, subjects, views) if form in _PLOTS else _text(form, subjects, views).encode()
    try:
        out.write_bytes(content)
    except OSError as error:
        raise ResultsError(f"can't write {out}: {error.strerror}") from None
    return 0


def _format(named: str | None, out: Path | None) -> str:
    if named is not None:
        return named
    if out is None:
        return "text"
    suffix = out.suffix.lower().removeprefix(".")
    form = _BY_SUFFIX.get(suffix, suffix)
    if form not in FORMATS:
        raise UsageError(f"can't tell a format from {str(out)!r}", hint=f"--format {', '.join(FORMATS)}")
    return form


def _is_same(left: Path, right: Path) -> bool:
    return left.exists() and right.exists() and left.samefile(right)


def _subjects(paths: Sequence[Path]) -> list[Subject]:
    """Each file's run under the shortest name that tells it apart."""
    from deepdraft.records.file import read_run
    from deepdraft.report.subject import Subject

    stems = [path.stem for path in paths]
    subjects = []
    for path in paths:
        results = read_run(path)
        for loss in results.damage:
            print(f"deepdraft: {path}: {loss}", file=sys.stderr)
        name = path.stem if stems.count(path.stem) == 1 else str(path)
        subjects.append(Subject(name=name, run=results))
    return subjects


def _views(namespace: argparse.Namespace, subjects: Sequence[Subject], form: str) -> Views:
    from deepdraft.report.view import Views

    if form == "csv":
        return Views()
    from deepdraft.cli.report_view import Given, views_of

    if namespace.tp is not None and namespace.tp < 1:
        raise UsageError("--tp must be at least 1")
    views = views_of(subjects, Given(model=namespace.model, device=namespace.device, tp_size=namespace.tp))
    for remark in views.remarks:
        print(f"deepdraft: {remark}", file=sys.stderr)
    return views


def _text(form: str, subjects: Sequence[Subject], views: Views) -> str:
    if form == "svg":
        return _picture(form, subjects, views).decode()
    if form == "text":
        from deepdraft.report.text import report_text

        return report_text(subjects, views)
    if form == "md":
        from deepdraft.report.markdown import markdown_text

        return markdown_text(subjects, views)
    if form == "csv":
        from deepdraft.report.csv import results_csv

        return results_csv(*(subject.run for subject in subjects))
    if form == "json":
        from deepdraft.report.report_json import report_object

        return json.dumps(report_object(subjects, views), indent=2) + "\n"
    if form == "latex":
        from deepdraft.report.latex import latex_text

        return latex_text(subjects, views)
    from deepdraft.report.html import html_page

    return html_page(subjects, views)


def _picture(form: Any, subjects: Sequence[Subject], views: Views) -> bytes:
    from deepdraft.report.charts import charts_of
    from deepdraft.report.document import title_of

    try:
        from deepdraft.report.plot import plot_bytes
    except ModuleNotFoundError as missing:
        what = f"{form} needs {missing.name}, which is not installed"
        raise UsageError(what, hint="pip install 'deepdraft[report]'") from None
    charts = charts_of(subjects, views)
    if not charts:
        raise ResultsError("no point gave figures: there is nothing to draw")
    return plot_bytes(charts, form, title_of(subjects))
