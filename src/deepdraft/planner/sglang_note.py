"""What a reader of an SGLang plan must know beyond its figures, one sentence each."""

from __future__ import annotations

from deepdraft.cost.kv_family import Index
from deepdraft.planner.sglang_cell import Cell, has_window
from deepdraft.planner.sglang_choice import Choice
from deepdraft.planner.sglang_fraction import MIB
from deepdraft.planner.sglang_pool import Pool
from deepdraft.planner.sglang_spike import down_projection_bytes
from deepdraft.planner.sglang_v4_note import v4_notes
from deepdraft.planner.sglang_window import window_cap_tokens


def plan_notes(choice: Choice, cell: Cell, pool: Pool) -> tuple[str, ...]:
    """In the order of their weight."""
    notes = []
    if pool.num_tokens < choice.context_len:
        notes.append(
            f"The context limit is {choice.context_len:,} and the pool holds {pool.num_tokens:,} tokens: no longer "
            "request runs, whatever the limit says."
        )
    notes += [*_draft_notes(choice, cell, pool), *_chunk_notes(choice)]
    if choice.settings.dcp_size > 1:
        notes.append(
            f"{choice.settings.dcp_size} ranks share each sequence's tokens (--dcp-size), and the pool's tokens are "
            "those of all of them; an index and a drafter's rows are on every rank."
        )
    elif choice.num_ranks > 1 and choice.model.shape.is_latent and not choice.settings.enable_dp_attention:
        notes.append(
            f"Latent rows are not shared out: each of the {choice.settings.tp_size} ranks holds all of them."
        )
    cap = window_cap_tokens(choice)
    if cap is not None:
        notes.append(
            f"Without a radix cache windows have a pool of {cap:,} tokens, as much as {choice.max_running:,} running "
            "requests need: --max-running-requests moves the pool, --swa-full-tokens-ratio does not."
        )
    elif has_window(choice) and choice.version == "0.5.23" and not pool.num_tokens:
        notes.append(
            "A windows' pool of no more than a window and a page admits no request, and the server refuses to start "
            "on it: raise --swa-full-tokens-ratio or the fraction."
        )
    elif has_window(choice):
        notes.append(
            f"Layers with a window have a pool of their own of {choice.swa_ratio:g} x as many tokens "
            "(--swa-full-tokens-ratio)."
        )
    if choice.is_post_capture:
        notes.append(
            "This version sizes the pool after it captured its graphs (post-capture): graphs and buffers come out of "
            "the fraction."
        )
    notes += v4_notes(choice, pool)
    if any(isinstance(each, Index) for each in choice.model.shape.families):
        notes.append(
            "The index of sparse attention scores each token of a chunk against all the context; how much of that is "
            "held at once follows what is free, and is not in the prefill's need."
        )
    if choice.model.shape.is_latent or choice.version == "0.5.12":
        notes.append(
            "--context-length and --max-running-requests don't move the pool; they cost graph buffers beside it."
        )
    return tuple(notes)


def _draft_notes(choice: Choice, cell: Cell, pool: Pool) -> list[str]:
    if choice.drafter is None:
        return []
    difference = cell.counted - cell.true
    if abs(difference) < 1:
        return []
    total = abs(difference) * pool.num_tokens / 2**30
    if difference > 0:
        return [
            f"This version counts the drafter's KV as if its layers cost what the target's do: {cell.counted:,.0f} "
            f"bytes a token where {cell.true:,.0f} are used, {total:.2f} GiB kept free for nothing."
        ]
    return [
        f"This version does not count all of the drafter's KV: {cell.true:,.0f} bytes a token are used, "
        f"{cell.counted:,.0f} counted; {total:.2f} GiB more come out of what stays free."
    ]


def _chunk_notes(choice: Choice) -> list[str]:
    shape = choice.model.shape
    if not shape.num_experts_per_token:
        return []
    whole = down_projection_bytes(choice, choice.chunk_len) / MIB
    return [
        f"The experts' buffer of a prefill is in proportion to the chunk: {whole:,.0f} MiB at {choice.chunk_len:,} "
        f"tokens, {whole / 2:,.0f} MiB at {choice.chunk_len // 2:,}; half the chunk is half of it, not a quarter."
    ]
