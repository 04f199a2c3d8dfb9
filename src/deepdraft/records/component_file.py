"""Reads a component's results file. It is written by `file.ResultsWriter`, line by line, as a sweep's is."""

from __future__ import annotations

from pathlib import Path

from deepdraft.errors import ResultsError
from deepdraft.records.component import ComponentCase, ComponentHeader, ComponentRun
from deepdraft.records.line import End, Note
from deepdraft.records.stored_line import first_kind, read_content, stored_records

KIND = "component_header"
"""What the first line of such a file says it is."""
_TYPES = {KIND: ComponentHeader, "component_case": ComponentCase, "note": Note, "end": End}


def is_component_file(path: Path) -> bool:
    """Whether the file begins as a component's does; False too where it can't be read."""
    try:
        with path.open("rb") as file:
            return first_kind(file.readline()) == KIND
    except OSError:
        return False


def read_component_run(path: Path) -> ComponentRun:
    """Read a component's results file. Bad lines are left out and named in `damage`; so is a case without repeats.

    Raises ResultsError when the file can't be read, is empty, is not a component's, or was written by a newer
    Deepdraft.
    """
    records, damage = stored_records(path, read_content(path), _TYPES)
    if not records or not isinstance(records[0], ComponentHeader):
        raise ResultsError(
            f"{path} is not a component's results file" + (f": {damage[0]}" if damage else ""),
            hint="give a file written by `deepdraft bench NAME --out FILE`",
        )
    cases = [record for record in records if isinstance(record, ComponentCase)]
    damage += [f"the case {case.name!r} has no repeats" for case in cases if not case.repeats]
    return ComponentRun(
        header=records[0],
        cases=tuple(case for case in cases if case.repeats),
        notes=tuple(record for record in records if isinstance(record, Note)),
        ends=tuple(record for record in records if isinstance(record, End)),
        damage=tuple(damage),
    )
