"""A component's results as one JSON object, and as CSV: `deepdraft bench --json` and `show`."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from typing import Any

from deepdraft.metrics.component import ceiling_name, parts_s, peer_ratios, per_round, seconds_of, shares_frac
from deepdraft.records.component import ComponentCase, ComponentRun
from deepdraft.report.component_table import names_of
from deepdraft.stats import summary

COMPONENT_SCHEMA_VERSION = 1


def component_object(run: ComponentRun) -> dict[str, Any]:
    """Plain dicts, lists, strings, numbers and None."""
    header = run.header
    return {
        "schema_version": COMPONENT_SCHEMA_VERSION,
        "component": header.component,
        "run_id": header.run_id,
        "created_at": header.created_at,
        "deepdraft_version": header.deepdraft_version,
        "settings": header.settings,
        "environment": header.environment,
        "is_complete": run.is_complete,
        "cases": [_case(case) for case in run.cases],
        "notes": [note.message for note in run.notes],
        "damage": list(run.damage),
    }


def component_csv(run: ComponentRun) -> str:
    """One row a case; a column for each peer's ratio. An empty field: not known."""
    text = io.StringIO()
    peers = names_of(run.cases)
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(
        ["component", "case", "seconds", "low_s", "high_s", "num_repeats", "ceiling", "share_frac"]
        + [f"{name} ratio" for name in peers]
    )
    for case in run.cases:
        found, shares, ratios = seconds_of(case), summary(shares_frac(case)), peer_ratios(case)
        row: list[Any] = [run.header.component, case.name, found.median, found.low, found.high, found.num_samples]
        row += [ceiling_name(case), None if shares is None else shares.median]
        rows.writerow(row + [_middle(ratios.get(name, ())) for name in peers])
    return text.getvalue()


def _case(case: ComponentCase) -> dict[str, Any]:
    shares = summary(shares_frac(case))
    return {
        "name": case.name,
        "facts": case.facts,
        "seconds": asdict(seconds_of(case)),
        "ceiling": ceiling_name(case),
        "share_frac": None if shares is None else asdict(shares),
        "peer_ratios": {
            name: asdict(one) for name, found in peer_ratios(case).items() if (one := summary(found)) is not None
        },
        "parts_s": {name: asdict(found) for name, found in parts_s(case).items()},
        "tokens_per_round": per_round(case, "tokens"),
        "rows_per_round": per_round(case, "rows"),
        "note": case.note,
    }


def _middle(found: tuple[float, ...]) -> float | None:
    middle = summary(found)
    return None if middle is None else middle.median
