"""hf-mem: its own function for the cache of a safetensors model, on the config that its `run` would read."""

import json
import sys
from pathlib import Path

from hf_mem.safetensors.kv_cache import compute_safetensors_kv_cache_size  # type: ignore[import-not-found]

config = json.loads(Path(sys.argv[1], "config.json").read_text())
is_nested = "ForConditionalGeneration" in config["architectures"][0] and "text_config" in config
text = config["text_config"] if is_nested else config
print(json.dumps({"num_bytes": compute_safetensors_kv_cache_size(text, "BF16", int(sys.argv[2]), 1)}))
