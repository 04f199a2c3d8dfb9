"""kvfit: the state of one sequence; it refuses a model it does not know."""

import json
import sys
from pathlib import Path

from kvfit.architectures import estimate_cache  # type: ignore[import-not-found]

config = json.loads(Path(sys.argv[1], "config.json").read_text())
print(json.dumps({"num_bytes": round(estimate_cache(config, context_tokens=int(sys.argv[2])).total_bytes)}))
