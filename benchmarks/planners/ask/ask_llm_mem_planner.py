"""llm-mem-planner: `kv_per_rank` of its report."""

import json
import re
import subprocess
import sys
from pathlib import Path

words = [str(Path(sys.executable).with_name("llm-mem")), "--config", f"{sys.argv[1]}/config.json"]
done = subprocess.run([*words, "--seq-len", sys.argv[2], "--batch", "1", "--tp", "1"], capture_output=True, text=True)
found = re.search(r"kv_per_rank=([\d.]+) GiB", done.stdout)
if not found:
    raise SystemExit((done.stderr or done.stdout).strip().splitlines()[-1])
print(json.dumps({"num_bytes": round(float(found[1]) * 2**30)}))
