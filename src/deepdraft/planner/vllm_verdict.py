"""Whether vLLM starts on a plan, whether a long prefill holds, and what its reader must know."""

from __future__ import annotations

from deepdraft.planner.judge import judgement
from deepdraft.planner.ledger import Ledger
from deepdraft.planner.size import GIB, size_text
from deepdraft.planner.verdict import Verdict
from deepdraft.planner.vllm_budget import requested_bytes
from deepdraft.planner.vllm_choice import VllmChoice
from deepdraft.planner.vllm_profile import spike_entries

_SEEN_LEN = 150_000
_SEEN_BYTES = 3 * GIB
"""The most that was seen above the profiled peak in a long prefill, at that length: DeepSeek-V4 on 96 GB cards, with
expandable segments (rtx6kpro issue 103). Not a law: how far a plan without a probe may be off."""


def vllm_verdict(choice: VllmChoice, ledger: Ledger, reserve_bytes: int, available_bytes: int) -> Verdict:
    """Why it does not start, where it does not; else the judgement on the longest prefill."""
    refused = _refusal(choice, ledger, available_bytes)
    if refused is not None:
        return refused

    def spike_of(context_len: int) -> tuple[int, int]:
        known = sum(entry.num_bytes for entry in spike_entries(choice, context_len))
        return known, min(context_len, _SEEN_LEN) * _SEEN_BYTES // _SEEN_LEN

    return judgement(
        reserve_bytes=reserve_bytes,
        reserve_error_bytes=ledger.error_bytes("outside"),
        spike_of=spike_of,
        max_len=choice.max_len,
    )


def _refusal(choice: VllmChoice, ledger: Ledger, available_bytes: int) -> Verdict | None:
    """The ways in which vLLM refuses to start, in the order in which it looks."""
    requested = requested_bytes(choice)
    free_bytes = choice.device_bytes - ledger.total_bytes("outside")
    if choice.settings.kv_cache_memory_bytes is None and free_bytes < requested:
        return Verdict(
            outcome="does_not_start",
            summary=f"Does not start: the fraction asks for {size_text(requested)} of {size_text(free_bytes)} free.",
            margin_bytes=free_bytes - requested,
            advice=(f"Lower --gpu-memory-utilization below {choice.utilization * free_bytes / requested:.3f}.",),
        )
    if available_bytes <= 0:
        return Verdict(
            outcome="does_not_start",
            summary="Does not start: weights, activations and graphs take "
            f"{size_text(requested - available_bytes)} of the {size_text(requested)} that the fraction allows.",
            margin_bytes=available_bytes,
            advice=(
                "Raise --gpu-memory-utilization, or spread the weights over more devices.",
                "Lower --max-num-batched-tokens and --max-num-seqs: what they need at the start is in the fraction.",
            ),
        )
    needed = choice.layout.request_bytes(choice.max_len)
    if needed > available_bytes:
        longest = choice.layout.longest(available_bytes, choice.max_len)
        return Verdict(
            outcome="does_not_start",
            summary=f"Does not start: one request of {choice.max_len:,} tokens needs {size_text(needed)} of cache, "
            f"the pool is {size_text(available_bytes)}.",
            margin_bytes=available_bytes - needed,
            advice=(
                f"Lower --max-model-len to {longest:,}, or raise --gpu-memory-utilization.",
                "--kv-cache-dtype fp8 halves what a token takes.",
            ),
        )
    return None


def vllm_notes(choice: VllmChoice, *, is_calibrated: bool) -> tuple[str, ...]:
    """One sentence each, in the order of their weight."""
    layout, shape = choice.layout, choice.model.shape
    notes = []
    if choice.v4 is not None:
        notes.append(
            "DeepSeek-V4's compressors keep every token in flight, a block of the pool for 4 or 8 of them: "
            f"{size_text(layout.fixed_bytes(choice.max_len))} a request, nearly in proportion to "
            f"--max-num-batched-tokens ({choice.num_batched:,})."
        )
    if layout.is_hybrid:
        notes.append(
            f'The log\'s "GPU KV cache size" is concurrency x max_model_len: a request may hold '
            f"{size_text(layout.fixed_bytes(choice.max_len))} whatever its length and {layout.bytes_per_token:,.0f} "
            "bytes a token, so that figure changes with max_model_len while the memory does not."
        )
    notes.append(
        "vLLM's fraction is of all the device's memory and holds activations and CUDA graphs beside weights and "
        "pool; SGLang's is of what is free before the weights and leaves activations and graphs outside: the same "
        "number makes pools far apart."
    )
    notes.append(
        "The profile run attends to no context: what a long prefill takes above it is a probe's result, and 3.0 GiB "
        "were seen at 150k tokens."
    )
    if not is_calibrated:
        notes.append("Activations and CUDA graphs are estimated; the log of one start replaces them.")
    if shape.is_multimodal:
        notes.append("The profile run also runs the encoder of a multimodal model, which is not counted here.")
    if choice.settings.data_parallel_size > 1 and shape.num_experts:
        notes.append("vLLM shares experts out over data-parallel ranks too; the weights here are without that.")
    return tuple(notes)
