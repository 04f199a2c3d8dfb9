"""A word of why where the libraries that training needs are missing."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_NEEDED = ("torch", "transformers", "tokenizers", "safetensors")
_MISSING = [name for name in _NEEDED if importlib.util.find_spec(name) is None]


class _MissingLibraries(pytest.Module):
    """Stands for a test file that cannot be imported here: skipped, with the libraries' names."""

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        pytest.skip(f"training needs {', '.join(_MISSING)}", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Report this folder's files as skipped where a library is missing; otherwise leave them to pytest."""
    if not _MISSING:
        return None
    module: pytest.Module = _MissingLibraries.from_parent(parent, path=module_path)
    return module
