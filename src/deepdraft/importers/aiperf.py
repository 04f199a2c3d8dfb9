"""aiperf's exports: `profile_export_aiperf.json` and `.csv` (summaries), `profile_export.jsonl` (one record a
request). As of 0.13.0, whose JSON has schema 1.4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deepdraft.errors import ResultsError
from deepdraft.importers.aiperf_records import is_record, records_line
from deepdraft.importers.aiperf_summary import csv_metrics, summary_line
from deepdraft.importers.document import Document
from deepdraft.importers.field import entries, file_name, part, text
from deepdraft.importers.imported import Imported
from deepdraft.records import Reported

TOOL = "aiperf"
_UNKNOWNS = (
    "the server's version and settings",
    "whether prompts were served from a prefix cache, unless the server reported cached tokens",
)
_TRAPS = (
    "token counts are the client's tokenizer's on the answer's text unless --use-server-token-count was given: a "
    "word that encodes to three tokens counts as three",
    "inter_token_latency divides by all tokens but one unless --per-chunk-usage was given, also where the first "
    "chunk held several",
    "an error object inside a stream counts as a success",
    "the acceptance gauge of SGLang is averaged over the scrape window, idle zeros included: it is left out",
)


def recognises(document: Document) -> bool:
    """By the export's version field, a record's metadata, or the CSV's first columns."""
    first = document.first
    is_json = "aiperf_version" in first or "unit" in part(first, "time_to_first_token")
    return is_json or is_record(first) or document.text.startswith("Metric,avg,min,max")


def read(document: Document) -> Imported:
    """One point a file: aiperf writes one for each run. Raises ResultsError for a newer schema."""
    first = document.first
    if is_record(first):
        return _imported(*records_line(document.objects), {})
    if first:
        schema = text(first, "schema_version") or "1.0"
        if schema.partition(".")[0] != "1":
            raise ResultsError(
                f"{document.name} is an {TOOL} export of schema {schema}; this Deepdraft reads 1.x",
                hint="upgrade deepdraft",
            )
        return _imported(summary_line(first, first), (), first)
    return _imported(summary_line(csv_metrics(document.text), {}), (), {})


def _imported(line: Reported | None, losses: Sequence[str], report: Mapping[str, Any]) -> Imported:
    config = part(report, "input_config")
    models = entries(part(config, "models"), "items") or entries(config, "models")
    first_model = models[0] if models else None
    model = first_model if isinstance(first_model, str) else text(first_model, "name")
    return Imported(
        tool=TOOL,
        version=text(report, "aiperf_version"),
        lines=() if line is None else (line,),
        model=file_name(model or text(part(config, "endpoint"), "model")),
        speculation="yes" if line is not None and line.acceptance is not None else "unknown",
        measured_at=text(report, "start_time"),
        unknowns=_UNKNOWNS,
        traps=_TRAPS,
        losses=tuple(losses),
    )
