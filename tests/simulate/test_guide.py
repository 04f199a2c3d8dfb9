"""The guide names every switch, fault and pattern there is."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import get_args

from deepdraft.simulate.patterns import FAULTS, PATTERNS
from deepdraft.simulate.spec import DIALECTS, Confounds, Fault, FaultKind

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "simulate.md"


def test_the_guide_is_complete() -> None:
    named = set(re.findall(r"`([a-z0-9_]+)`", GUIDE.read_text()))
    named |= {name.partition("=")[0] for name in re.findall(r"`([a-z_]+=[^`]*)`", GUIDE.read_text())}
    known = {field.name for kind in (Confounds, Fault) for field in dataclasses.fields(kind)} - {"kind"}
    known |= {*PATTERNS, *FAULTS, *DIALECTS, *get_args(FaultKind)}
    assert known - named == set()
