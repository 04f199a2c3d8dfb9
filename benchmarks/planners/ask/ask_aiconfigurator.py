"""aiconfigurator: its model's own count of a sequence's cache, with a cache of 2 bytes a number."""

import json
import sys

from aiconfigurator_core.sdk import common, config  # type: ignore[import-not-found]
from aiconfigurator_core.sdk.models import get_model  # type: ignore[import-not-found]

asked = config.ModelConfig(
    tp_size=1, moe_tp_size=1, moe_ep_size=1, kvcache_quant_mode=common.KVCacheQuantMode.bfloat16
)
model = get_model(sys.argv[1], asked, "vllm")
print(json.dumps({"num_bytes": round(model.get_kvcache_bytes_per_sequence(int(sys.argv[2])))}))
