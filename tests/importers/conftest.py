"""Reads the recorded samples for the tests of this room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from deepdraft.importers import import_file
from deepdraft.records import Run

SAMPLES = Path(__file__).parents[1] / "samples"


@pytest.fixture
def imported() -> Callable[..., Run]:
    """The run of a sample, by its path below tests/samples; the format must be found from the content."""

    def read(name: str, format_name: str = "auto") -> Run:
        return import_file(SAMPLES / name, name=format_name, created_at="2026-11-29T00:00:00Z")

    return read


@pytest.fixture
def from_text(tmp_path: Path) -> Callable[[str | bytes], Run]:
    """The run of a file with that content."""

    def read(content: str | bytes) -> Run:
        path = tmp_path / "results.json"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return import_file(path)

    return read
