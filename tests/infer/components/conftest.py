"""Timing for tests: two short turns. What is measured is of no interest, only that it is measured and kept."""

from __future__ import annotations

import pytest

from deepdraft.infer.components.turns import Timing


@pytest.fixture
def brief() -> Timing:
    """Two turns of two runs."""
    return Timing(num_repeats=2, cell_s=1e-6)
