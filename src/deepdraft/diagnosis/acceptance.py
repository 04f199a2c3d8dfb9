"""What a point's sources say of tokens a step, side by side, so that they can contradict each other.

Accepted depth leaves the bonus token out; everything here is brought to committed tokens a step, bonus included.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.curve import GuardedPoint
from deepdraft.metrics.speculation import LIFETIME_AVERAGE, acceptance_rate_by_depth, step_counts
from deepdraft.records import Acceptance
from deepdraft.stats import median

SGLANG_LOG_INTERVAL = 40
"""Decode steps between two updates of SGLang's speculation figures, unless --decode-log-interval says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One source's word."""

    name: str
    tokens_per_step: float


def acceptances(point: GuardedPoint) -> tuple[Acceptance, ...]:
    """Every set of counts behind a point: of its requests, of its trials, or of its source."""
    if point.point.reported is not None:
        said = point.point.reported.acceptance
        return (said,) if said is not None else ()
    requests = [sample.request.acceptance for sample in point.point.samples]
    trials = [trial.trial.acceptance for trial in point.point.trials if trial.trial is not None]
    own = [each for each in requests if each is not None] or [each for each in trials if each is not None]
    return tuple(own)


def statements(point: GuardedPoint) -> tuple[Statement, ...]:
    """What each source says, as committed tokens a step; a source that gives several figures speaks several times.
    A table's `accepted_len` (no figure of ours: drafts accepted a step) counts with the bonus token added."""
    said: dict[str, list[float]] = {}
    if point.point.reported is not None:
        for name, bonus in (("tokens_per_step", 0), ("acceptance_len", 0), ("accepted_len", 1)):
            figure = point.point.reported.figures.get(name)
            if figure is not None:
                word = (figure.definition or name) + (" (+ 1)" if bonus else "")
                said.setdefault(word, []).append(median(figure.values) + bonus)
    for acceptance in acceptances(point):
        for name, value in _of_counts(acceptance):
            said.setdefault(name, []).append(value)
    return tuple(Statement(name=name, tokens_per_step=median(values)) for name, values in said.items())


def _of_counts(acceptance: Acceptance) -> Iterator[tuple[str, float]]:
    counts = step_counts(acceptance)
    if counts.num_verify_steps and counts.num_accepted is not None:
        yield "1 + accepted / verify steps", 1 + counts.num_accepted / counts.num_verify_steps
    lengths, by_step = acceptance.accepted_len_histogram, acceptance.accepted_len_by_step
    num_counted: int = sum(lengths or ())
    if lengths is not None and num_counted > 0:
        num_accepted = sum(length * count for length, count in enumerate(lengths))
        yield "histogram of accepted lengths", 1 + num_accepted / num_counted
    if by_step:
        num_accepted = sum(by_step)
        yield "accepted lengths by step", 1 + num_accepted / len(by_step)
    if acceptance.stated_acceptance_len is not None:
        yield "the engine's own mean", acceptance.stated_acceptance_len


def is_contradictory(point: GuardedPoint, factor: float = 1.25) -> bool:
    """Whether its sources differ by more than that factor."""
    values = [each.tokens_per_step for each in statements(point)]
    return len(values) > 1 and max(values) > factor * max(min(values), 0.01)


def is_read_too_seldom(case: Case, point: GuardedPoint) -> bool:
    """Whether its acceptance comes from a figure that can't have moved, or that covers more, than these requests."""
    figure = point.point.figures.get("acceptance_len")
    if figure is not None and any(LIFETIME_AVERAGE in source for source in figure.sources):
        return True
    own = acceptances(point)
    if any(each.is_lifetime_average for each in own):
        return True
    if case.capabilities.engine != "sglang" or any(step_counts(each).num_verify_steps for each in own):
        return False
    has_mean = figure is not None or any(each.stated_acceptance_len is not None for each in own)
    has_mean = has_mean or (case.speculates is True and _shows_gauge(point))
    length = decode_len(case, point)
    return has_mean and length is not None and length <= log_interval(case)


def _shows_gauge(point: GuardedPoint) -> bool:
    """Whether the engine's mean was read around the point's trials, without counts of their own."""
    looks = [look for trial in point.point.trials if trial.trial for look in (trial.trial.before, trial.trial.after)]
    return any(look is not None and "spec_acceptance_len" in look.gauges for look in looks)


def log_interval(case: Case) -> int:
    """Decode steps between two updates of SGLang's own speculation figures."""
    said = case.settings.get("decode_log_interval")
    return said if isinstance(said, int) and said > 0 else SGLANG_LOG_INTERVAL


def is_mostly_off(point: GuardedPoint) -> bool:
    """Whether the server itself left drafting off at most of the point's steps: what its few rounds show is why."""
    told = [each.decisions for each in acceptances(point) if each.decisions is not None]
    num_plain = sum(sum(decisions.plain_steps_by_reason.values()) for decisions in told)
    return num_plain > sum(sum(decisions.rounds_by_reason.values()) for decisions in told)


def decode_len(case: Case, point: GuardedPoint) -> int | None:
    """Output tokens a request of the point."""
    if point.point.reported is not None:
        return point.point.reported.decode_len
    asked = [sample.request.max_tokens for sample in point.point.samples]
    return max(asked) if asked else case.run.header.spec.decode_len


def trusted_acceptance_len(case: Case, point: GuardedPoint) -> float | None:
    """Committed tokens a step, where its sources agree and could have moved; else None."""
    if is_contradictory(point) or is_read_too_seldom(case, point):
        return None
    known = point.median("acceptance_len")
    said = statements(point)
    if known is None and said:
        known = median([each.tokens_per_step for each in said])
    return known if known is not None and known >= 1 else None


def standard_error(point: GuardedPoint, length: float) -> float:
    """Of the point's acceptance length, by its number of steps: the steps' own scatter where a histogram tells it,
    else that of drafts accepted one by one with equal chance; 0 where no steps are counted."""
    known = acceptances(point)
    steps = sum(step_counts(each).num_verify_steps or 0 for each in known)
    if not steps:
        return 0.0
    histograms = [each.accepted_len_histogram for each in known if each.accepted_len_histogram]
    counted: int = sum(sum(histogram) for histogram in histograms)
    if counted <= 0:
        return math.sqrt(length * (length - 1) / steps)
    squares = sum(
        count * (accepted + 1 - length) ** 2 for histogram in histograms for accepted, count in enumerate(histogram)
    )
    return math.sqrt(squares / counted / steps)


def rates_by_depth(point: GuardedPoint) -> tuple[float, ...] | None:
    """The share of steps that accepted the draft at depth 1, 2, ...: the mean over its requests; None without."""
    known = [rates for each in acceptances(point) if (rates := acceptance_rate_by_depth(each)) is not None]
    if not known:
        return None
    depth = max(len(rates) for rates in known)
    return tuple(
        sum(rates[place] if place < len(rates) else 0.0 for rates in known) / len(known) for place in range(depth)
    )


def num_steps(point: GuardedPoint) -> float | None:
    """Verify steps of a request, the median over its requests; None without counts."""
    known = [float(steps) for each in acceptances(point) if (steps := step_counts(each).num_verify_steps)]
    return median(known) if known else None


def drafted_len(point: GuardedPoint) -> float | None:
    """Draft tokens a verify step; None without the counts."""
    known = [
        each.num_draft_tokens / steps
        for each in acceptances(point)
        if each.num_draft_tokens and (steps := step_counts(each).num_verify_steps)
    ]
    return median(known) if known else None
