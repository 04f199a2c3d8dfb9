"""The page: what follows from the answers, in Markdown.

A ratio is of answers to the same prompt, given one after another: the geometric mean over the prompts with Student's
95 % interval of the logs (`deepdraft.stats.ratio`). Above 1 the first named is faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from deepdraft.stats.ratio import RatioEstimate, paired_ratio
from deepdraft.stats.theil_sen import theil_sen

from .answer import Answer
from .memory import Footprint
from .mode import AUTO, CHAIN, MODES, NEVER, NONE, TREE
from .text import KINDS, kind_of

MAX_FLOOR_FACTOR = 3.0
MIN_AUTO_RATIO = 0.97
MIN_SPEED_UP = 2.0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the figures were taken with."""

    machine: str
    date: str
    torch: str
    num_threads: int
    backend: str
    drafter: str
    tree_budget: int
    decode_len: int
    temperature: float
    kv_bytes_per_token: int
    """Of the target's layers"""
    drafter_kv_bytes_per_token: int


class Found:
    """All answers, by length and mode."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self._answers = {each.key: each for each in answers}
        self.context_lens = sorted({each.context_len for each in answers})
        self.modes = [mode for mode in MODES if any(each.mode == mode for each in answers)]
        self.copy_bytes_s = median(each.copy_bytes_s for each in answers)
        self.plain = NEVER if NEVER in self.modes else NONE
        """What drafting is held against."""

    def of(self, context_len: int, mode: str) -> list[Answer]:
        """In the order of the prompts."""
        return [
            each for _, each in sorted(self._answers.items()) if (each.context_len, each.mode) == (context_len, mode)
        ]

    def token_s(self, context_len: int, mode: str) -> float | None:
        """The median over the prompts."""
        found = self.of(context_len, mode)
        return median(each.token_s for each in found) if found else None

    def speed(self, context_len: int, mode: str, other: str, kind: str | None = None) -> RatioEstimate | None:
        """How many times as fast as the other mode, over prompts that both answered; kind: of these alone."""
        mine, theirs = (
            {each.tail_index: each.token_s for each in self.of(context_len, one)} for one in (mode, other)
        )
        shared = sorted(index for index in mine.keys() & theirs.keys() if kind in (None, kind_of(index)))
        if not shared:
            return None
        return paired_ratio([mine[index] for index in shared], [theirs[index] for index in shared])

    def best(self, context_len: int, among: Sequence[str]) -> str | None:
        """The mode with the smallest median."""
        known = {mode: seconds for mode in among if (seconds := self.token_s(context_len, mode)) is not None}
        return min(known, key=known.__getitem__) if known else None

    def num_different(self, context_len: int) -> tuple[int, int]:
        """Prompts whose answers are not the same tokens in all modes, and prompts."""
        by_prompt: dict[int, set[tuple[int, ...]]] = {}
        for mode in self.modes:
            for each in self.of(context_len, mode):
                by_prompt.setdefault(each.tail_index, set()).add(each.token_ids)
        return sum(len(tokens) > 1 for tokens in by_prompt.values()), len(by_prompt)


def page(facts: Facts, answers: Sequence[Answer], footprints: Sequence[Footprint]) -> str:
    """Every table, and a line for each aim."""
    found = Found(answers)
    lines = [*_head(facts, found), *_times(facts, found), *_ratios(found), *_steps(found), *_aims(facts, found)]
    return "\n".join([*lines, *_memory(facts, footprints)])


def _head(facts: Facts, found: Found) -> Iterator[str]:
    text = "greedy" if facts.temperature == 0 else f"temperature {facts.temperature:g}"
    yield (
        f"Taken on {facts.date}, {facts.machine}; torch {facts.torch}, {facts.num_threads} threads, attention "
        f"{facts.backend}, drafter {facts.drafter}, trees of {facts.tree_budget}. Answers of {facts.decode_len} "
        f"tokens, {text}, one request at a time, in process. Copy bandwidth {found.copy_bytes_s / 1e9:.1f} GB/s "
        f"(read + write); a token has {facts.kv_bytes_per_token:,} bytes of KV, "
        f"{facts.drafter_kv_bytes_per_token:,} more with the drafter."
    )


def _times(facts: Facts, found: Found) -> Iterator[str]:
    yield "\n### Milliseconds a token: median over prompts (least - largest)\n"
    yield from _table_head("context", "prompts", "KV read at copy speed", *found.modes)
    for context_len in found.context_lens:
        cells = [f"{context_len:,}", str(found.num_different(context_len)[1])]
        cells.append(f"{1e3 * context_len * facts.kv_bytes_per_token / found.copy_bytes_s:.2f}")
        for mode in found.modes:
            times = [1e3 * each.token_s for each in found.of(context_len, mode)]
            cells.append(f"{median(times):.2f} ({min(times):.2f} - {max(times):.2f})" if times else "-")
        yield _row(*cells)


def _ratios(found: Found) -> Iterator[str]:
    pairs = [(AUTO, found.plain), (TREE, found.plain), (CHAIN, found.plain), (TREE, CHAIN), (NEVER, NONE)]
    pairs = [pair for pair in pairs if set(pair) <= set(found.modes) and pair[0] != pair[1]]
    has_auto = AUTO in found.modes
    yield "\n### How many times as fast [95 %]\n"
    yield from _table_head(
        "context", *(f"{one} / {other}" for one, other in pairs), *_if(has_auto, "auto / best of the others")
    )
    for context_len in found.context_lens:
        cells = [_ratio(found.speed(context_len, *pair)) for pair in pairs]
        best = found.best(context_len, [mode for mode in found.modes if mode not in (AUTO, NONE)])
        if has_auto:
            cells.append(f"{_ratio(found.speed(context_len, AUTO, best))} ({best})" if best else "-")
        yield _row(f"{context_len:,}", *cells)


def _steps(found: Found) -> Iterator[str]:
    drafting = [mode for mode in (AUTO, TREE, CHAIN) if mode in found.modes]
    has_auto = AUTO in found.modes
    yield "\n### Steps\n"
    yield "Tokens a round: what rounds with drafts committed. A step of a mode: all its steps, plain ones included.\n"
    yield from _table_head(
        "context",
        *(f"tokens a round, {mode}" for mode in drafting),
        *(f"ms a step, {mode}" for mode in found.modes),
        *_if(has_auto, "nodes a round, auto", "steps with speculation off, auto", "why, % of steps, auto"),
        "answers that differ",
    )
    for context_len in found.context_lens:
        cells = [f"{context_len:,}"]
        cells += [_quotient(found.of(context_len, mode), "num_round_tokens", "num_rounds") for mode in drafting]
        for mode in found.modes:
            steps = [step_s for each in found.of(context_len, mode) for step_s in each.step_s]
            cells.append(f"{1e3 * median(steps):.2f}" if steps else "-")
        if has_auto:
            auto = found.of(context_len, AUTO)
            num_steps = sum(len(each.step_s) for each in auto)
            num_plain = sum(each.num_plain_steps for each in auto)
            cells += [_quotient(auto, "num_nodes", "num_rounds"), f"{num_plain / max(1, num_steps):.0%}"]
            reasons = sum((Counter(each.reasons) for each in auto), Counter[str]())
            cells.append(", ".join(f"{name} {count / num_steps:.0%}" for name, count in reasons.most_common()))
        num_different, num_prompts = found.num_different(context_len)
        yield _row(*cells, f"{num_different} of {num_prompts}")


def _aims(facts: Facts, found: Found) -> Iterator[str]:
    yield "\n### Aims\n"
    yield from _slope(facts, found)
    if AUTO in found.modes:
        known = {each: ratio for each in found.context_lens if (ratio := found.speed(each, AUTO, found.plain))}
        worst = min(known, key=lambda each: known[each].value)
        word = _met(known[worst].value >= MIN_AUTO_RATIO)
        yield (
            f"- auto / {found.plain}, aim {MIN_AUTO_RATIO} or more at every length: {word}; least "
            f"{_ratio(known[worst])} at {worst:,}."
        )
    drafting = [mode for mode in (AUTO, TREE, CHAIN) if mode in found.modes]
    for wanted, aim in ((1_024, MIN_SPEED_UP), (64_000, None)):
        context_len = min(found.context_lens, key=lambda each: abs(each - wanted))
        best = found.best(context_len, drafting)
        if best is None:
            continue
        ratio = found.speed(context_len, best, found.plain)
        by_kind = ", ".join(f"{kind} {_ratio(found.speed(context_len, best, found.plain, kind))}" for kind in KINDS)
        verdict = f", aim {aim:g}: {_met(ratio is not None and ratio.value >= aim)}" if aim else ""
        yield f"- Best speed-up over plain decoding at {context_len:,}: {_ratio(ratio)} ({best}; {by_kind}){verdict}."


def _slope(facts: Facts, found: Found) -> Iterator[str]:
    points = [
        (float(each), seconds)
        for each in found.context_lens
        if (seconds := found.token_s(each, found.plain)) is not None
    ]
    if len(points) < 2:
        return
    slope = theil_sen(points)
    floor = facts.kv_bytes_per_token / found.copy_bytes_s
    interval = (
        f" [{1e6 * slope.interval.low:.3f} - {1e6 * slope.interval.high:.3f}]" if slope.interval is not None else ""
    )
    yield (
        f"- {found.plain} grows by {1e6 * slope.value:.3f}{interval} ms for each 1,000 tokens, reading their KV at "
        f"copy speed takes {1e6 * floor:.3f} ms: {slope.value / floor:.2f} times; aim {MAX_FLOOR_FACTOR:g}: "
        f"{_met(0 < slope.value <= MAX_FLOOR_FACTOR * floor)}."
    )


def _memory(facts: Facts, footprints: Sequence[Footprint]) -> Iterator[str]:
    if not footprints:
        return
    yield "\n### Memory, MiB: a process with one request of that length\n"
    yield from _table_head("context", "drafter", "KV of the request", "resident before", "resident after", "at most")
    for each in footprints:
        has_drafter = each.mode != NONE
        per_token = facts.kv_bytes_per_token + (facts.drafter_kv_bytes_per_token if has_drafter else 0)
        sizes = (each.context_len * per_token, each.before_bytes, each.decoding_bytes, each.peak_bytes)
        cells = [f"{size / 2**20:,.0f}" for size in sizes]
        yield _row(f"{each.context_len:,}", facts.drafter if has_drafter else "none", *cells)


def _quotient(answers: Sequence[Answer], above: str, below: str) -> str:
    total = sum(getattr(each, below) for each in answers)
    return f"{sum(getattr(each, above) for each in answers) / total:.2f}" if total else "-"


def _ratio(ratio: RatioEstimate | None) -> str:
    if ratio is None:
        return "-"
    interval = f" [{ratio.interval.low:.2f} - {ratio.interval.high:.2f}]" if ratio.interval is not None else ""
    return f"{ratio.value:.2f}{interval}"


def _met(is_met: bool) -> str:
    return "met" if is_met else "**missed**"


def _if(is_wanted: bool, *words: str) -> tuple[str, ...]:
    return words if is_wanted else ()


def _table_head(*cells: str) -> Iterator[str]:
    yield _row(*cells)
    yield _row("--:", *("--:" for _ in cells[1:]))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
