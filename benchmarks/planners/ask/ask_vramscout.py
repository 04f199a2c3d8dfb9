"""vramscout: the parts of its report that are cache or state. It asks the hub for the number of parameters of a
mixture of experts; it is given one here, which the cache does not depend on."""

import contextlib
import io
import json
import sys

from vramscout import modern_core  # type: ignore[import-not-found]
from vramscout.cli import main  # type: ignore[import-not-found]

modern_core._dense_param_fallback = lambda config: 1_000_000_000
sys.argv = ["vramscout", f"{sys.argv[1]}/config.json", "--context", sys.argv[2], "--vram-gib", "96", "--json"]
printed = io.StringIO()
with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
    main()
answer = json.loads(printed.getvalue())
if "error" in answer:
    raise SystemExit(answer["error"])
others = ("Model weights / rank", "CUDA / runtime", "Prefill scratch", "Safety reserve")
cache_gib = sum(size for part, size in answer["parts_gib"].items() if part not in others)
print(json.dumps({"num_bytes": round(cache_gib * 2**30), "parts": sorted(answer["parts_gib"])}))
