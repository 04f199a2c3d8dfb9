"""Makes the cases importable here, as other rooms' conftest does for theirs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
