"""Which way to turn after a server died: at the start and in a prefill the fraction goes opposite ways.

At the start, weights and pool did not fit into what the fraction allows: more of it. In a prefill, what the fraction
leaves free was too little: less of it. The one exception is a start that dies after its pool was made, while graphs
are captured: that is the second case already.
"""

from __future__ import annotations

from typing import Literal

from deepdraft.planner.flag import FRACTION
from deepdraft.planner.plan import Plan
from deepdraft.planner.size import size_text

Moment = Literal["start", "prefill"]


def died_advice(moment: Moment, plan: Plan) -> tuple[str, ...]:
    """What to change, one sentence each, the first the most likely. `plan`: of the settings that died."""
    if plan.engine == "llamacpp":
        return _LLAMACPP[moment]
    fraction = f"{_FRACTION_FLAG[plan.engine]} (now {_fraction(plan):g})"
    if moment == "start":
        return _at_start(plan, fraction)
    return _in_prefill(plan, fraction)


def _at_start(plan: Plan, fraction: str) -> tuple[str, ...]:
    message = _START_MESSAGES[plan.engine]
    first = f"If it said {message}: raise {fraction}. Weights have to fit into it and leave room for a pool."
    needed = _fraction(plan) - _counted_pool_bytes(plan) / max(1, _divided_bytes(plan))
    floor = f"By this plan nothing is left for a pool below {needed:.3f}; if that is above 0.95, use more devices."
    captured = (
        "If it died after the pool was made, while graphs were captured: lower it, as for a prefill, or capture "
        f"fewer requests ({_GRAPH_FLAG[plan.engine]})."
    )
    taken = "If memory was taken before the start (another process, a start that has not ended): free it first."
    return first, floor, captured, taken


def _in_prefill(plan: Plan, fraction: str) -> tuple[str, ...]:
    step_bytes = 0.01 * _divided_bytes(plan)
    step_tokens = int(step_bytes / plan.bytes_per_token) if plan.bytes_per_token else 0
    return (
        f"Lower {fraction}: what it leaves free was too little. Each 0.01 gives {size_text(step_bytes)} back and "
        f"takes {step_tokens:,} tokens from the pool.",
        f"Halve {_CHUNK_FLAG[plan.engine]} first: it takes nothing from the pool and halves most of the "
        f"{size_text(plan.prefill_spike_bytes)} that a chunk needs.",
        "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True where memory was reserved but not allocated: it cures "
        "fragmentation and nothing else.",
        f"Lower {_CAP_FLAG[plan.engine]} and the context limit: buffers of CUDA graphs grow with both.",
    )


def _fraction(plan: Plan) -> float:
    field = FRACTION[plan.engine]
    stated = getattr(plan.settings, field)
    return float(stated if stated is not None else plan.effective[field])


def _counted_pool_bytes(plan: Plan) -> float:
    """What the pool takes of the fraction: SGLang counts by its own price of a token."""
    return plan.kv_pool_tokens * plan.bytes_per_token if plan.engine == "sglang" else plan.ledger.total_bytes("pool")


def _divided_bytes(plan: Plan) -> int:
    """What the fraction is a fraction of: SGLang's is of what was free before weights, vLLM's of all memory."""
    return plan.device_bytes - (plan.ledger.total_bytes("outside") if plan.engine == "sglang" else 0)


_FRACTION_FLAG = {"sglang": "--mem-fraction-static", "vllm": "--gpu-memory-utilization"}
_CHUNK_FLAG = {"sglang": "--chunked-prefill-size", "vllm": "--max-num-batched-tokens"}
_CAP_FLAG = {"sglang": "--max-running-requests", "vllm": "--max-num-seqs"}
_GRAPH_FLAG = {"sglang": "--cuda-graph-max-bs", "vllm": "--max-num-seqs"}
_START_MESSAGES = {
    "sglang": '"Not enough memory. Please try to increase --mem-fraction-static"',
    "vllm": '"No available memory for the cache blocks"',
}
_LLAMACPP = {
    "start": (
        "Lower --ctx-size, or store the cache in fewer bytes (-ctk q8_0 -ctv q8_0): all of it is allocated at once.",
        "Or leave layers in host memory: --n-gpu-layers.",
    ),
    "prefill": (
        "Lower --ubatch-size: compute buffers grow with it. They are reserved at the start, so a death in a prefill "
        "is mostly host memory: lower --cache-ram (8 GiB of prompts by default).",
    ),
}
