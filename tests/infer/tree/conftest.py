"""Makes the builder of tree cases importable for the tests of this floor."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
