"""The JSON Schema of a results file's lines, generated from the records (never written by hand)."""

from __future__ import annotations

from typing import Any

import msgspec

from deepdraft.records.component import ComponentCase, ComponentHeader
from deepdraft.records.line import End, Header, Measurement, Note, Refusal, Trial
from deepdraft.records.reported import Reported
from deepdraft.records.schema_version import SCHEMA_VERSION

LINE_TYPES = (Header, Measurement, Trial, Reported, Refusal, Note, End, ComponentHeader, ComponentCase)


def results_schema() -> dict[str, Any]:
    """One schema that every line of a results file satisfies."""
    schemas, components = msgspec.json.schema_components(LINE_TYPES, ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"One line of a Deepdraft results file (schema version {SCHEMA_VERSION})",
        "oneOf": list(schemas),
        "$defs": components,
    }


def results_schema_text() -> str:
    """The schema as it stands in docs/reference/results.schema.json."""
    return msgspec.json.format(msgspec.json.encode(results_schema()), indent=2).decode() + "\n"
