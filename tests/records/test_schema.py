"""The published schema is the one the records give."""

from pathlib import Path

from deepdraft.records.schema import LINE_TYPES, results_schema, results_schema_text

PUBLISHED = Path(__file__).parents[2] / "docs" / "reference" / "results.schema.json"


def test_the_published_schema_is_up_to_date() -> None:
    assert PUBLISHED.read_text() == results_schema_text(), "run scripts/generate.py"


def test_every_kind_of_line_is_in_the_schema() -> None:
    schema = results_schema()
    assert len(schema["oneOf"]) == len(LINE_TYPES)
    kinds = {
        definition["properties"]["kind"]["enum"][0]
        for name, definition in schema["$defs"].items()
        if name in {entry["$ref"].rsplit("/", 1)[1] for entry in schema["oneOf"]}
    }
    assert kinds == {"header", "measurement", "trial", "reported", "refusal", "note", "end"} | {
        "component_header",
        "component_case",
    }
