"""Makes sweep.jsonl from table.toml, the same bytes each time: `deepdraft import` with a fixed date."""

from __future__ import annotations

import sys
from pathlib import Path

from deepdraft.importers import import_file
from deepdraft.records.file import ResultsWriter

FOLDER = Path(__file__).resolve().parent
ENTERED_AT = "2026-11-29T00:00:00Z"


def main(out: Path = FOLDER / "sweep.jsonl") -> None:
    """Write the results file, in place of the one that is there."""
    run = import_file(
        FOLDER / "table.toml",
        command_line=("deepdraft", "import", "table.toml", "--out", "sweep.jsonl"),
        created_at=ENTERED_AT,
    )
    out.unlink(missing_ok=True)
    writer = ResultsWriter.create(out, run.header)
    writer.append(*run.reported, *run.notes, *run.ends)
    writer.close()


if __name__ == "__main__":
    main(*(Path(word) for word in sys.argv[1:2]))
