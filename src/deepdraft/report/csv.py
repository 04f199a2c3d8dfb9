"""One row a point, columns flattened: for spreadsheets and data frames. An empty cell is "not known"."""

from __future__ import annotations

import csv
import io

from deepdraft.metrics import FIGURE_NAMES, Point, points_of
from deepdraft.records import Run
from deepdraft.report.doubt import PointDoubts, point_doubts

_PARTS = ("median", "low", "high", "num_samples")
_HEAD = ("run_id", "url", "engine", "engine_version", "model", "method", "text")
_COUNTS = (
    "num_requests",
    "num_ok",
    "num_failed",
    "num_warmups",
    "num_superseded",
    "num_needles_found",
    "num_needles",
)


def results_csv(*runs: Run) -> str:
    """The points of every run as CSV (RFC 4180, LF line ends), with a head line even when there are no points."""
    rows = [
        _row(run, point, point_doubts(run, point, points))
        for run, points in ((run, points_of(run)) for run in runs)
        for point in points
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    names = names or [*_HEAD, "context_len", "asked_context_len", "concurrency"]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _row(run: Run, point: Point, doubts: PointDoubts) -> dict[str, object]:
    spec, server = run.header.spec, run.header.capabilities
    row: dict[str, object] = dict(
        zip(
            _HEAD,
            (run.header.run_id, spec.url, server.engine, server.version, server.model, spec.method, spec.text),
            strict=True,
        )
    )
    row |= {
        "context_len": point.context_len,
        "asked_context_len": point.asked_context_len,
        "concurrency": point.concurrency,
    }
    for name in FIGURE_NAMES:
        brief = point.summary(name)
        for part in _PARTS:
            row[f"{name}_{part}"] = getattr(brief, part) if brief is not None else None
    row |= {name: getattr(point, name) for name in _COUNTS}
    row["num_refused_pairs"] = len(point.refused_pairs)
    row["peak_concurrency"] = point.peak_concurrency
    for guard in doubts.guards:
        row[f"guard_{guard.name}"] = guard.state
    row["text_nature"] = doubts.text.nature
    row["text_warning"] = doubts.text.warning
    row["in_doubt"] = " ".join(sorted(doubts.violated))
    row["unverified"] = " ".join(sorted(doubts.unverified))
    return row
