"""Memory of long contexts, in a process of its own: peak resident size is a process's own figure."""

import json
import subprocess
import sys

SCRIPT = """
import json, resource
import torch
from deepdraft.infer.kernels import dense, torch_backend
from deepdraft.infer.kernels.plan import AttentionPlan, LayerKv

NUM_TOKENS, NUM_QUERIES, PAGE_SIZE = 131072, 48, 16
dense.MAX_SCORES = 1 << 20
torch.manual_seed(0)
half = NUM_TOKENS // PAGE_SIZE // 2
pages = [*range(half), *(half + torch.randperm(half)).tolist()]
queries = torch.randn(NUM_QUERIES, 4, 80)
expanded = torch.randn(NUM_QUERIES, 4, 48), torch.randn(4, 32, 64), torch.randn(4, 32, 64)

def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def attend(backend, kv_len, keys, form):
    layer = LayerKv(keys, keys[..., :64], True)
    plan = AttentionPlan.of(page_size=PAGE_SIZE, query_lens=[NUM_QUERIES], kv_lens=[kv_len], pages=[pages])
    if form == "absorbed":
        return backend.attend(queries, layer, plan, scale=0.1)
    return backend.attend_expanded(expanded[0], layer, plan, key_up=expanded[1], value_up=expanded[2], scale=0.1)

cache = torch.randn(NUM_TOKENS, 1, 80)
caches = {"float32": cache, "bfloat16": cache.to(torch.bfloat16)}
fused = torch_backend.TorchAttention()
torch_backend.dense_attention = lambda _: dense.portable_attention
backends = {"fused": fused, "portable": torch_backend.TorchAttention()}
grown_mib = {}
for form in ("absorbed", "expanded"):
    for backend in backends:
        for dtype in caches:
            attend(backends[backend], 1024, caches[dtype], form)
            before = peak_mib()
            attend(backends[backend], NUM_TOKENS, caches[dtype], form)
            grown_mib[f"{form} {backend} {dtype}"] = peak_mib() - before
print(json.dumps(grown_mib))
"""


def test_attention_at_128k_needs_little_beyond_the_cache():
    """The cache is 40 MiB, half of it in one run. A whole matrix of scores would be 96 MiB, expanded keys and values
    160 MiB."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=150)
    grown_mib = json.loads(done.stdout)
    assert len(grown_mib) == 8
    assert sum(grown_mib.values()) < 70, grown_mib
