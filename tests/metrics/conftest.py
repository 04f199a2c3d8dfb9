"""Makes the builders of traces and runs importable for the tests of this room."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "metrics"))
