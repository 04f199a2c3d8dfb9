"""Makes the builders of runs importable for the tests of this room."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "metrics"), str(HERE.parent / "findings_cases")]
