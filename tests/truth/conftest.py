"""Makes the helpers of this folder, and the builders of traces, importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "metrics"))
sys.path.insert(0, str(Path(__file__).parent))
