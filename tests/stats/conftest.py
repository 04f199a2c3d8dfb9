"""Makes the synthetic curves importable; the fits need the extra `analysis`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
