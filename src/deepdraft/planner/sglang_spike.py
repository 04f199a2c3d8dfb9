"""What one chunk of a prefill needs while it runs, on one rank of an SGLang server.

Of a chunk of C tokens in bfloat16: the experts' down-projection, C x experts a token x width x 2 bytes, which tensor
parallelism does not divide (intermediate_cache13 of fused_marlin_moe.py, intermediate_cache3 of the Triton path); the
hidden states that a drafter taps, once as captured and once joined (logits_processor.py: torch.cat of
aux_hidden_states); activations; and on all back ends but Triton the prefix's keys and values in expanded form
(forward_mha.py, in pieces of at most 128 Ki tokens). Where the pool is sized after graphs of the prefill were
captured, what the layers need is in those graphs already.
"""

from __future__ import annotations

from deepdraft.cost.kv_family import Recurrent
from deepdraft.cost.prefill_spike import expert_buffer_bytes, tapped_states_bytes
from deepdraft.planner.ledger import Certainty, LedgerEntry
from deepdraft.planner.sglang_choice import Choice

_MAX_PREFIX_LEN = 128 * 1024
_FRAGMENT_FRAC = 0.5
_UNFORESEEN_TOKEN_BYTES = 20 * 1024
_UNFORESEEN_MAX_BYTES = 3 * 2**30
_ELEMENT_BYTES = 2


def spike_entries(choice: Choice, prompt_len: int) -> tuple[LedgerEntry, ...]:
    """Of the largest chunk of a prompt of that length. Grows with it, never falls."""
    chunk_len = min(choice.chunk_len, prompt_len)
    layers = () if choice.is_post_capture else layer_entries(choice, chunk_len)
    entries = [
        *layers,
        *_taps(choice, chunk_len),
        *_prefix(choice, prompt_len - chunk_len),
        *_gathered_rows(choice, prompt_len, chunk_len),
        *_recurrence(choice, chunk_len),
    ]
    entries += _fragments(choice, entries, is_chunked=prompt_len > chunk_len)
    entries.append(
        _spike(
            "unforeseen at long context",
            0,
            "estimate",
            "nothing is known to grow so; 3.0 GiB over the profiled peak was seen once at 150k tokens of DeepSeek-V4 "
            "(rtx6kpro issue 103): only a probe at the longest context tells",
            error_bytes=min(_UNFORESEEN_TOKEN_BYTES * prompt_len, _UNFORESEEN_MAX_BYTES),
        )
    )
    return tuple(entry for entry in entries if entry.num_bytes or entry.error_bytes)


def layer_entries(choice: Choice, chunk_len: int) -> tuple[LedgerEntry, ...]:
    """Buffers of one layer at a time: experts and activations."""
    return (*_experts(choice, chunk_len), _activations(choice, chunk_len))


def down_projection_bytes(choice: Choice, chunk_len: int) -> int:
    """The experts' down-projection of that many tokens; 0 without experts."""
    shape = choice.model.shape
    width = max(shape.moe_hidden or shape.hidden, 2 * -(-shape.expert_mlp // choice.settings.tp_size))
    return expert_buffer_bytes(chunk_len, num_experts_per_token=shape.num_experts_per_token, width=width)


def _experts(choice: Choice, chunk_len: int) -> list[LedgerEntry]:
    shape = choice.model.shape
    if not shape.num_experts_per_token:
        return []
    inner = chunk_len * shape.num_experts_per_token * -(-shape.expert_mlp // choice.settings.tp_size) * _ELEMENT_BYTES
    return [
        _spike(
            "experts' down-projection",
            down_projection_bytes(choice, chunk_len),
            "formula",
            f"chunk {chunk_len:,} x {shape.num_experts_per_token} experts a token x width x 2 bytes, whole on a rank",
        ),
        _spike(
            "experts' hidden layer", inner, "formula", "chunk x experts a token x expert width of a rank x 2 bytes"
        ),
    ]


def _taps(choice: Choice, chunk_len: int) -> list[LedgerEntry]:
    drafter, shape = choice.drafter, choice.model.shape
    if drafter is None or not drafter.num_taps:
        return []
    return [
        _spike(
            "hidden states for the drafter",
            2 * tapped_states_bytes(chunk_len, num_taps=drafter.num_taps, hidden=shape.hidden * shape.num_streams),
            "formula",
            f"chunk x {drafter.num_taps} taps x hidden x 2 bytes, as captured and again joined into one"
            + (f"; {shape.num_streams} streams" if shape.num_streams > 1 else ""),
        )
    ]


def _activations(choice: Choice, chunk_len: int) -> LedgerEntry:
    """Hidden, residual, normed, attention's and MLP's output, their sum over ranks; queries, results of attention."""
    shape = choice.model.shape
    heads = -(-shape.num_qo_heads // choice.attention_tp)
    width = shape.kv_lora_rank or shape.v_head_dim or 0
    attention = 2 * heads * (width + (shape.qk_rope_head_dim or 0)) + (shape.q_lora_rank or 0) + width
    mlp = 0 if shape.num_experts_per_token else 3 * -(-shape.dense_mlp // choice.settings.tp_size)
    streams = 4 + 2 * shape.num_streams  # what a layer reads and what it leaves, of each
    num_bytes = chunk_len * (streams * shape.hidden + attention + mlp) * _ELEMENT_BYTES
    return _spike(
        "activations",
        num_bytes,
        "estimate",
        f"chunk x ({streams} x hidden + queries and results of attention + dense MLP) x 2 bytes",
        error_bytes=round(0.3 * num_bytes),
    )


def _prefix(choice: Choice, prefix_len: int) -> list[LedgerEntry]:
    shape = choice.model.shape
    if not shape.is_latent or choice.backend == "triton" or prefix_len <= 0:
        return []
    heads = -(-shape.num_qo_heads // choice.attention_tp)
    nope, value = shape.qk_nope_head_dim or 0, shape.v_head_dim or 0
    width = heads * (2 * (nope + value) + (shape.qk_rope_head_dim or 0))
    return [
        _spike(
            "expanded keys and values of the prefix",
            min(prefix_len, _MAX_PREFIX_LEN) * width * _ELEMENT_BYTES,
            "formula",
            "up to 131,072 prefix tokens x heads of a rank x (2 x (nope + value) + rope) x 2 bytes",
        )
    ]


def _gathered_rows(choice: Choice, prompt_len: int, chunk_len: int) -> list[LedgerEntry]:
    """DeepSeek-V4: sparse prefill attends to rows unpacked into one buffer, which is kept (SparsePrefillKVBuffer of
    layers/attention/dsv4/sparse_prefill_utils.py)."""
    form = choice.v4
    if form is None or choice.version == "0.5.12" or form.has_uniform_rows or form.is_unified:
        return []
    num_rows = -(-prompt_len // 4) + form.layers.window - 1 + chunk_len
    words = "(prompt / 4 + window + chunk) x row x 2 bytes, unpacked for sparse prefill"
    return [_spike("unpacked rows", num_rows * form.layers.dim * _ELEMENT_BYTES, "formula", words)]


def _recurrence(choice: Choice, chunk_len: int) -> list[LedgerEntry]:
    """Chunked scans keep a state for every 64 tokens, of one layer at a time."""
    states = [
        each.state_elements // each.num_heads * -(-each.num_heads // choice.attention_tp)
        for each in choice.model.shape.families
        if isinstance(each, Recurrent) and each.stride == 1
    ]
    num_bytes = -(-chunk_len // 64) * max(states, default=0) * _ELEMENT_BYTES
    if not num_bytes:
        return []
    return [
        _spike(
            "states of a chunked scan", num_bytes, "estimate", "chunk / 64 x state x 2 bytes", error_bytes=num_bytes
        )
    ]


def _fragments(choice: Choice, entries: list[LedgerEntry], *, is_chunked: bool) -> list[LedgerEntry]:
    """From the second chunk on the allocator holds blocks of other sizes that it can't join."""
    total = sum(entry.num_bytes for entry in entries)
    if not is_chunked or choice.settings.expandable_segments:
        return []
    num_bytes = round(_FRAGMENT_FRAC * total)
    words = "half of the above: 1.4 GiB beside 3.0 GiB were seen; none with expandable segments"
    return [_spike("fragmentation", num_bytes, "estimate", words, error_bytes=num_bytes // 2)]


def _spike(name: str, num_bytes: int, certainty: Certainty, source: str, *, error_bytes: int = 0) -> LedgerEntry:
    return LedgerEntry(
        name=name, num_bytes=num_bytes, place="spike", certainty=certainty, source=source, error_bytes=error_bytes
    )
