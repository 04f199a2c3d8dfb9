"""modelinfo-cli: its layers and width of a cache row, times 2 x 2 bytes x tokens as its calculator does."""

import json
import sys
from pathlib import Path

from modelinfo.architecture import extract_architecture  # type: ignore[import-not-found]

config = json.loads(Path(sys.argv[1], "config.json").read_text())
num_layers, kv_width, _ = extract_architecture({}, config)
print(json.dumps({"num_bytes": 2 * num_layers * kv_width * int(sys.argv[2]) * 2}))
