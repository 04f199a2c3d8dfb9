"""Makes the builders of traces, runs and reports importable for the tests of this room."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "metrics"), str(Path(__file__).parent)]
