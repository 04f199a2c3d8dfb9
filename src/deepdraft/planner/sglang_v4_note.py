"""What a reader of an SGLang plan for DeepSeek-V4 must know beyond its figures."""

from __future__ import annotations

from deepdraft.planner.sglang_choice import Choice
from deepdraft.planner.sglang_pool import Pool
from deepdraft.planner.sglang_v4 import PAGE_SIZE, V4Form


def v4_notes(choice: Choice, pool: Pool) -> tuple[str, ...]:
    """One sentence each; none for other models."""
    form = choice.v4
    if form is None:
        return ()
    notes = [f"DeepSeek-V4's pages are of {PAGE_SIZE} tokens and its rows packed fp8, whatever the flags say."]
    if choice.settings.max_running_requests is None:
        notes.append(f"At most {form.num_requests} requests run at once on a rank: this version's default for it.")
    if form.num_draft_tokens:
        notes.append(
            f"SGLang drafts for it in one branch only: give --speculative-eagle-topk 1 and --speculative-num-steps "
            f"{max(form.num_draft_tokens - 1, 1)} with --speculative-num-draft-tokens {form.num_draft_tokens}."
        )
    if choice.version == "0.5.23":
        notes += _pool_notes(form, pool)
    return tuple(notes)


def _pool_notes(form: V4Form, pool: Pool) -> list[str]:
    if form.is_unified:
        return [
            "With unified KV windows and compressors' states are rings of running requests: --max-running-requests "
            "moves the pool, --swa-full-tokens-ratio does not."
        ]
    if pool.v4 is None or not pool.num_tokens:
        return [
            f"A windows' pool of at most {form.layers.window + PAGE_SIZE} tokens admits no request, and the server "
            "refuses to start on it: raise --swa-full-tokens-ratio or the fraction."
        ]
    return [
        f"Windows have a pool of their own, {pool.v4.window_tokens:,} tokens ({form.window_ratio:g} x, "
        f"--swa-full-tokens-ratio): {pool.v4.most_requests:,} requests fit into it at once. Sizing it by the running "
        "requests instead is for DeepSeek-V4.1, which is not known here."
    ]
