"""Requests leave nothing behind: what Python holds does not grow with their number once every bounded log is full."""

from __future__ import annotations

import gc
import random
import tracemalloc
from itertools import pairwise
from typing import Any

import torch

from deepdraft.infer.step_record import StepLog

NUM_REQUESTS = 40
"""Of each kind in a phase."""
NUM_PHASES = 4
MALFORMED = (b"", b"{", b'{"prompt": [99999999]}', b'{"prompt": "a", "max_tokens": -1}')
ALLOWED_BYTES = 30
"""A request. What is kept of one is more: its id alone is a string of 80 bytes."""


def mix(server: Any, rng: random.Random) -> None:
    """Answers read to the end and answers left, other prompts each time, refusals, and looks at the server."""
    for _ in range(NUM_REQUESTS):
        prompt = [rng.randrange(10, 200) for _ in range(rng.randrange(4, 60))]
        assert server.complete(prompt, max_tokens=3).status == 200
        body = {"prompt": prompt[::-1], "max_tokens": 100, "stream": True, "ignore_eos": True}
        server.send("/v1/completions", body).close()
        assert server.post("/v1/completions", rng.choice(MALFORMED)).status == 400
        assert server.get("/health").status == 200
    assert server.get("/metrics").status == 200
    server.wait_until_idle()


def held_bytes() -> int:
    """What Python holds, without what torch's calls leave in tracemalloc's books (40 bytes a request, no object)."""
    gc.collect()
    torch_lines = [
        tracemalloc.Filter(False, f"*/infer/{folder}/*") for folder in ("kernels", "layers", "models", "kv")
    ]
    others = [tracemalloc.Filter(False, "*/infer/runner.py"), tracemalloc.Filter(False, tracemalloc.__file__)]
    snapshot = tracemalloc.take_snapshot().filter_traces([*torch_lines, *others])
    return sum(trace.size for trace in snapshot.traces)


def num_tensors() -> int:
    """Alive."""
    return sum(type(one) is torch.Tensor for one in gc.get_objects())


def test_what_python_holds_does_not_grow_with_the_requests(serving: Any, random_folder: Any) -> None:
    with serving(random_folder, is_checked=False) as server:
        server.service.worker._engine.steps = StepLog(64)  # full soon; the default's 4,096 take longer
        rng = random.Random(5)
        tracemalloc.start()
        try:
            held = []
            for _ in range(NUM_PHASES):
                mix(server, rng)
                held.append((held_bytes(), num_tensors()))
        finally:
            tracemalloc.stop()
    growths = [later[0] - earlier[0] for earlier, later in pairwise(held[1:])]
    assert min(growths) < ALLOWED_BYTES * 2 * NUM_REQUESTS, held
    assert held[-1][1] == held[1][1]
