"""What SGLang takes beside weights and pool, and keeps: the buffers nobody counts.

For graphs of up to `max_bs` requests of T tokens, the Triton backend allocates page indices (max_bs x T x context
limit x 8 bytes), a mask of a byte each, and partial results of split attention (max_bs x T x heads x splits x value
width x 4). So the context limit and the request cap cost memory although neither moves the pool. Sources:
layers/attention/triton_backend.py (init_cuda_graph_state), mem_cache/memory_pool.py (ReqToTokenPool).
"""

from __future__ import annotations

from deepdraft.planner.gpu_memory import GIB
from deepdraft.planner.ledger import Certainty, LedgerEntry
from deepdraft.planner.sglang_choice import Choice, num_graphs
from deepdraft.planner.sglang_fraction import MIB, deepep_reserve_mib
from deepdraft.planner.sglang_spike import layer_entries

_BYTES_A_GRAPH = 10 * MIB
_KERNELS_BYTES = GIB // 4
_WORKSPACE_BYTES = {
    "flashinfer": 512 * MIB,
    "trtllm_mla": 150 * MIB,
    "trtllm_mha": 512 * MIB,
    "cutlass_mla": 128 * MIB,
}
_CUBLAS_BYTES = 64 * MIB
_MIN_LATENT_SPLITS, _MAX_SPLITS = 8, 8
_IMAGE_CACHE_BYTES = 100 * MIB


def slack_entries(choice: Choice, max_running: int) -> tuple[LedgerEntry, ...]:
    """The permanent entries beside the fraction, draft weights left out. `max_running`: the cap in effect."""
    entries = [_request_table(choice, max_running), *_graph_buffers(choice), *_graphs(choice), *_workspaces(choice)]
    if choice.is_post_capture:
        num_bytes = sum(entry.num_bytes for entry in layer_entries(choice, choice.chunk_len))
        words = "activations and expert buffers of one chunk, in the graphs' own memory"
        entries.append(_slack("captured prefill", num_bytes, "estimate", words, error_bytes=num_bytes // 2))
    entries += [*_image_cache(choice), *_deepep(choice)]
    entries.append(
        _slack(
            "kernels loaded after the start",
            _KERNELS_BYTES,
            "estimate",
            "lazily loaded modules of Triton, attention and expert kernels: 0.1 to 0.5 GiB",
            error_bytes=GIB // 4,
        )
    )
    return tuple(entry for entry in entries if entry.num_bytes)


def graph_tokens(choice: Choice) -> int:
    """Tokens of the largest captured step."""
    return choice.graph_max_bs * choice.num_draft_tokens


def _request_table(choice: Choice, max_running: int) -> LedgerEntry:
    width = choice.context_len + 4 + (choice.num_draft_tokens if choice.num_draft_tokens > 1 else 0)
    return _slack(
        "table of requests' pages",
        (max_running + 1) * width * 4,
        "formula",
        "(request cap + 1) x (context limit + 4 + draft tokens) x 4 bytes (req_to_token)",
    )


def _graph_buffers(choice: Choice) -> list[LedgerEntry]:
    tokens, context_len = graph_tokens(choice), choice.context_len
    if not tokens:
        return []
    if choice.backend != "triton":
        pages = -(-context_len // choice.page_size)
        num_bytes = choice.graph_max_bs * pages * 4
        words = "graph requests x pages of the context limit x 4 bytes"
        indices = _slack("CUDA graph page indices", num_bytes, "estimate", words, error_bytes=num_bytes)
        return [indices, *_index_scores(choice, tokens)]
    shape = choice.model.shape
    heads = -(-shape.num_qo_heads // choice.attention_tp)
    width = (shape.kv_lora_rank or shape.v_head_dim or 0) + 1  # a log-sum beside each result
    entries = [
        _slack(
            "CUDA graph page indices",
            tokens * context_len * 8,
            "formula",
            "graph requests x draft tokens x context limit x 8 bytes (Triton's kv_indices)",
        ),
        _slack(
            "CUDA graph partial attention",
            tokens * heads * _num_splits(choice) * width * 4,
            "formula",
            f"graph tokens x {heads} heads x {_num_splits(choice)} splits x {width} x 4 bytes (Triton's attn_logits)",
        ),
    ]
    if choice.num_draft_tokens > 1:
        entries.append(
            _slack(
                "CUDA graph verify mask",
                tokens * (context_len + choice.num_draft_tokens),
                "formula",
                "graph requests x draft tokens x (context limit + draft tokens) x 1 byte",
            )
        )
    return entries


def _index_scores(choice: Choice, tokens: int) -> list[LedgerEntry]:
    """DeepSeek-V4: scores of a step against every row of ratio 4 that the context limit allows, of one layer at a
    time (layers/attention/dsv4/metadata.py)."""
    if choice.v4 is None or not choice.v4.layers.num_4:
        return []
    num_rows = -(-choice.context_len // choice.page_size) * choice.page_size // 4
    words = "graph tokens x context limit / 4 x 4 bytes"
    return [_slack("CUDA graph index scores", tokens * num_rows * 4, "formula", words)]


def _num_splits(choice: Choice) -> int:
    """KV splits of decode attention: a latent model's by multiprocessors and context, others' 8."""
    if not choice.model.shape.is_latent:
        return _MAX_SPLITS
    by_device = _power_of_two(choice.device.num_multiprocessors or 132)
    return max(_MIN_LATENT_SPLITS, min(by_device, _power_of_two(-(-choice.context_len // 32))))


def _graphs(choice: Choice) -> list[LedgerEntry]:
    """The graphs themselves and the activations of their largest step; logits in float32, whole on every rank."""
    tokens, shape = graph_tokens(choice), choice.model.shape
    if not tokens:
        return []
    count = num_graphs(choice.graph_max_bs, is_speculative=choice.num_draft_tokens > 1)
    activations = tokens * (shape.hidden * 2 * 8 + shape.num_experts_per_token * shape.hidden * 2)
    logits = tokens * shape.vocab_size * 4
    return [
        _slack(
            "CUDA graphs",
            count * _BYTES_A_GRAPH + activations,
            "estimate",
            f"{count} graphs x 10 MiB, and the activations of the largest",
            error_bytes=count * _BYTES_A_GRAPH,
        ),
        _slack("logits of a decode step", logits, "formula", "graph tokens x vocabulary x 4 bytes"),
    ]


def image_cache_bytes(choice: Choice) -> int:
    """What 0.5.23 takes out of the pool's budget for image embeddings (SGLANG_VLM_CACHE_SIZE_MB)."""
    return _IMAGE_CACHE_BYTES if choice.version == "0.5.23" and choice.model.shape.is_multimodal else 0


def _image_cache(choice: Choice) -> list[LedgerEntry]:
    words = "SGLANG_VLM_CACHE_SIZE_MB, 100 unless set"
    return [_slack("cache of image embeddings", image_cache_bytes(choice), "formula", words)]


def _deepep(choice: Choice) -> list[LedgerEntry]:
    """Where the engine reserves for them, they are taken to be as large as that."""
    num_bytes = round(deepep_reserve_mib(choice.version, choice.settings) * MIB)
    words = "as much as the engine's own fraction leaves for them with graphs"
    return [_slack("DeepEP buffers", num_bytes, "estimate", words, error_bytes=num_bytes // 2)]


def _workspaces(choice: Choice) -> list[LedgerEntry]:
    workspace = _WORKSPACE_BYTES.get(choice.backend, 0) + _CUBLAS_BYTES
    words = "cuBLAS 64 MiB" + (f", {choice.backend}'s own buffer" if choice.backend in _WORKSPACE_BYTES else "")
    return [_slack("workspaces of libraries", workspace, "estimate", words, error_bytes=workspace // 2)]


def _slack(name: str, num_bytes: int, certainty: Certainty, source: str, *, error_bytes: int = 0) -> LedgerEntry:
    return LedgerEntry(
        name=name, num_bytes=num_bytes, place="slack", certainty=certainty, source=source, error_bytes=error_bytes
    )


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length() if number > 1 else 1
