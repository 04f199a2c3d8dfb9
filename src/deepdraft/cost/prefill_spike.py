"""Buffers that one chunk of a prefill takes for a moment, in bytes of bfloat16 on each rank.

    chunk      tokens of the chunk, all sequences together

What an engine adds (copies, workspaces, fragments) is left out.
"""

from __future__ import annotations

_ELEMENT_BYTES = 2


def expert_buffer_bytes(chunk: int, *, num_experts_per_token: int, width: int) -> int:
    """The experts' down-projection before it is summed: chunk x experts a token x width, which tensor parallelism
    does not divide (intermediate_cache13 of SGLang's and vLLM's fused_marlin_moe.py, intermediate_cache3 of their
    Triton path). `width` is the hidden size, or what experts write where that differs."""
    return chunk * num_experts_per_token * width * _ELEMENT_BYTES


def tapped_states_bytes(chunk: int, *, num_taps: int, hidden: int) -> int:
    """Hidden states captured for a drafter: chunk x taps x hidden."""
    return chunk * num_taps * hidden * _ELEMENT_BYTES
