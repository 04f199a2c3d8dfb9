"""Acceptance of a drafter on text it has not learned, at several context lengths.

The target writes after each prompt, its features are read once, and the rounds are counted as in `acceptance`. Leaves
out speed, and how the numbers are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from deepdraft.errors import UsageError
from deepdraft.infer.drafter_training.acceptance import CHAIN, Acceptance, acceptances
from deepdraft.infer.drafter_training.draft_module import DraftModule
from deepdraft.infer.drafter_training.features import FeatureReader
from deepdraft.infer.drafter_training.prompts import MIN_PROMPT_LEN, Prompt, Prompts
from deepdraft.infer.drafter_training.target import Target
from deepdraft.infer.drafter_training.written import answers

BUDGETS = (CHAIN, 8, 16, 32, 64)
MAX_RUNNING_REQUESTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSettings:
    """What is evaluated."""

    context_lens: tuple[int, ...] = (1024, 4096)
    num_prompts: int = 32
    """Of each context length."""
    output_len: int = 256
    temperature: float = 0.0
    budgets: tuple[int, ...] = BUDGETS
    top_k: int = 8
    seed: int = 0


@dataclass(frozen=True, slots=True)
class EvaluatedPoint:
    """One context length and one form of draft."""

    context_len: int
    """Tokens of each prompt."""
    budget: int
    """CHAIN, or nodes of a tree"""
    num_outputs: int
    num_output_tokens: int
    temperature: float
    acceptance: Acceptance


def evaluated(
    module: DraftModule,
    target: Target,
    documents: Sequence[Sequence[int]],
    settings: EvaluationSettings,
    report: Callable[[str], None],
) -> list[EvaluatedPoint]:
    """Every context length under every budget. Raises UsageError where a context is too long for the target."""
    longest = max(settings.context_lens) + settings.output_len
    if longest > target.max_context_len:
        raise UsageError(
            f"a context of {max(settings.context_lens)} tokens and {settings.output_len} more is longer than the "
            f"target's {target.max_context_len}",
            hint="name shorter ones with --eval-context-lens",
        )
    reader = FeatureReader(target.model, module.shape.target_layers, longest)
    points = []
    for context_len in settings.context_lens:
        started_s = monotonic()
        prompts = _prompts(documents, context_len, settings)
        written = list(
            answers(
                target.model,
                target.tokenizer,
                prompts,
                max_tokens=settings.output_len,
                temperature=lambda _: settings.temperature,
                max_running_requests=MAX_RUNNING_REQUESTS,
            )
        )
        samples = [reader.sample(one.prompt, one.output, module.shape.draft_window) for one in written]
        found = acceptances(
            module,
            samples,
            embedding=target.embedding,
            output=target.output,
            budgets=settings.budgets,
            top_k=settings.top_k,
            temperature=settings.temperature,
            seeds=[one.number for one in written],
        )
        num_tokens = sum(len(sample.token_ids) - sample.num_prompt_tokens for sample in samples)
        points += [
            EvaluatedPoint(context_len, budget, len(samples), num_tokens, settings.temperature, acceptance)
            for budget, acceptance in found.items()
            if acceptance.accepted_lens
        ]
        report(f"acceptance after {context_len} tokens: {_told(found)} ({monotonic() - started_s:.0f} s)")
    return points


def _prompts(documents: Sequence[Sequence[int]], context_len: int, settings: EvaluationSettings) -> list[Prompt]:
    """Prompts of exactly `context_len` tokens: whole documents fill up what a window lacks."""
    prompts = Prompts(documents, seed=settings.seed, max_short_len=context_len)
    if context_len < MIN_PROMPT_LEN:
        raise UsageError(f"a context of {context_len} tokens is too short to evaluate, {MIN_PROMPT_LEN} is the least")
    return [prompts.exact(number, context_len) for number in range(settings.num_prompts)]


def _told(found: dict[int, Acceptance]) -> str:
    parts = [
        f"{'chain' if budget == CHAIN else f'tree of {budget}'} {acceptance.acceptance_len:.2f}"
        for budget, acceptance in found.items()
        if acceptance.accepted_lens
    ]
    return ", ".join(parts) or "no output was long enough for a round"
