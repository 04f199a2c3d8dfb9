"""What vLLM measures when it starts, estimated from shapes: activations of its profile run, and CUDA graphs.

Sources: vLLM 0.32.0, v1/worker/gpu_model_runner.py (profile_run, _dummy_sampler_run), the buffers of fused MoE
(intermediate_cache13, intermediate_cache2), model_executor/layers/attention/mla_attention.py (workspace of a chunked
prefill), config/vllm.py (batch sizes that are captured). All are estimates: a start's log replaces them.
"""

from __future__ import annotations

from deepdraft.cost.kv_dtype import kv_dtype
from deepdraft.cost.kv_family import Index
from deepdraft.planner.ledger import LedgerEntry
from deepdraft.planner.size import MIB, size_text
from deepdraft.planner.vllm_choice import VllmChoice
from deepdraft.planner.vllm_v4 import late_bytes, workspace_bytes

_GRAPH_BYTES = 12 * MIB
_SAMPLER_BYTES = 36
"""Of one logit: in the model's type and float32, sorted beside its place (float32, int64), and what sorting takes.
Public logs: 1.26 GiB for 256 requests of Llama-3-8B (pull request 10511), some 7 GiB for 1,024 of gpt-oss-120b
(issues 23278, 27508)."""
_WORKSPACE_ROWS = 64 * 1024
_MAX_INDEX_SCORES_BYTES = 512 * MIB
_SM120 = ("RTX PRO 6000 Blackwell", "RTX 5090")
"""Where DeepSeek-V4's attention is FlashInfer's, which gathers nothing in a prefill."""


def activation_entry(choice: VllmChoice) -> LedgerEntry:
    """The peak of a forward pass of max_num_batched_tokens, or of sampling for max_num_seqs, whichever is more."""
    shape = choice.model.shape
    forward_bytes = _forward_bytes(choice)
    num_logits = min(choice.num_seqs, choice.num_batched) * shape.vocab_size
    sampler_bytes = num_logits * _SAMPLER_BYTES + 2 * choice.num_batched * shape.hidden
    peak_bytes = max(forward_bytes, sampler_bytes)
    return LedgerEntry(
        name="activations of the profile run",
        num_bytes=peak_bytes,
        place="slack",
        certainty="estimate",
        source=f"the more of a pass of {choice.num_batched:,} tokens ({size_text(forward_bytes)}) and sampling for "
        f"{choice.num_seqs:,} requests ({size_text(sampler_bytes)}); inside gpu_memory_utilization",
        error_bytes=peak_bytes // 2,
    )


def _forward_bytes(choice: VllmChoice) -> int:
    """Residual stream and the widest part of one layer, on one rank."""
    shape, tp_size = choice.model.shape, choice.settings.tensor_parallel_size
    element = kv_dtype(shape.dtype).row_bytes(1)
    rows = choice.num_batched * element
    widest = rows * 3 * -(-shape.dense_mlp // tp_size)
    if shape.num_experts:
        inner = -(-shape.expert_mlp // tp_size)
        routed = rows * shape.num_experts_per_token
        widest = max(widest, routed * (max(2 * inner, shape.moe_hidden or shape.hidden) + inner))
    workspace = 0
    layers = choice.v4
    if layers is not None:
        workspace = workspace_bytes(
            layers,
            max_len=choice.max_len,
            num_batched=choice.num_batched,
            topk=shape.index_topk,
            is_flashmla=choice.device.name not in _SM120,
        )
    if shape.kv_lora_rank is not None:  # latent rows of the context in pieces, and expanded for the heads of a rank
        num_rows = min(max(8 * choice.max_len, 4 * choice.num_seqs * choice.layout.block_len), _WORKSPACE_ROWS)
        expanded = -(-shape.num_qo_heads // tp_size) * ((shape.qk_nope_head_dim or 0) + (shape.v_head_dim or 0))
        widest = max(widest, num_rows * expanded * element)
        workspace = num_rows * (shape.kv_lora_rank + (shape.qk_rope_head_dim or 0)) * element
    return workspace + (2 + 2 * shape.num_streams) * rows * shape.hidden + widest


def graph_entry(choice: VllmChoice) -> LedgerEntry:
    """Decode batches that are captured; their estimate is taken from the pool before they are."""
    query_len = 1 + (choice.settings.num_speculative_tokens or 0)
    largest = min(choice.num_seqs * query_len * 2, 1024 if "b200" in choice.device.name.lower() else 512)
    sizes = {1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)}
    num_sizes = 0 if choice.settings.enforce_eager else sum(size <= largest for size in sizes)
    return LedgerEntry(
        name="CUDA graphs",
        num_bytes=num_sizes * _GRAPH_BYTES,
        place="slack",
        certainty="estimate",
        source=f"{num_sizes} batch sizes at some 12 MiB each; inside gpu_memory_utilization since 0.21",
        error_bytes=num_sizes * _GRAPH_BYTES * 2 // 3,
    )


def spike_entries(choice: VllmChoice, context_len: int) -> tuple[LedgerEntry, ...]:
    """What a prefill of that length is known to need beyond the profile run, which attends to no context."""
    if choice.v4 is not None or not any(isinstance(each, Index) for each in choice.model.shape.families):
        return ()  # of DeepSeek-V4 the profile run holds the scores
    return (
        LedgerEntry(
            name="scores of the sparse index",
            num_bytes=min(choice.num_batched * context_len * 4, _MAX_INDEX_SCORES_BYTES),
            place="spike",
            certainty="formula",
            source="chunk x context x 4 bytes, in pieces of VLLM_SPARSE_INDEXER_MAX_LOGITS_MB (512)",
        ),
    )


def late_entries(choice: VllmChoice) -> tuple[LedgerEntry, ...]:
    """What is allocated after the pool was sized, and so comes out of what the fraction leaves."""
    layers = choice.v4
    num_bytes = 0
    if layers is not None:
        num_bytes = late_bytes(layers, max_len=choice.max_len, num_batched=choice.num_batched)
    if not num_bytes:
        return ()
    return (
        LedgerEntry(
            name="places of compressed rows",
            num_bytes=num_bytes,
            place="slack",
            certainty="formula",
            source="2 x max_num_batched_tokens x max_model_len / 128 x 4 bytes, made with the pool and not profiled "
            "(DeepseekV4SparseMLAMetadataBuilder)",
        ),
    )
