"""Makes the builders of traces and runs, and the findings cases, importable."""

import sys
from pathlib import Path

for folder in ("metrics", "findings_cases", "compare"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))
