"""Acceptance from each place an engine tells it.

Pure functions over what an answer or two readings hold; which sources an engine has is the adapters' business, which
of them to believe `acceptance_choice`'s. Accepted tokens never include the bonus token; acceptance lengths do. Where
the counts come from is named in words, since the same word means different things in different engines
(docs/reference/servers.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from deepdraft.records import Acceptance, DraftDecisions, ServerReading, StepParts

CONTRADICTION_FRAC = 0.05
"""Figures that differ by more than this are said to contradict each other."""


def of_llamacpp_timings(timings: Mapping[str, Any]) -> Acceptance | None:
    """llama.cpp's `timings`: tokens drafted and accepted, for this request alone.

    The steps are not stated. Each step commits what it accepted and one more, and the first token is sampled by the
    prefill, so there were predicted_n - 1 - draft_n_accepted of them, steps without a draft included.
    """
    drafted, accepted = _count(timings.get("draft_n")), _count(timings.get("draft_n_accepted"))
    if not drafted or accepted is None:
        return None
    predicted = _count(timings.get("predicted_n"))
    num_steps = None if predicted is None else predicted - 1 - accepted
    return Acceptance(
        source="timings.draft_n and draft_n_accepted of the answer; steps = predicted_n - 1 - draft_n_accepted, "
        "those without a draft included",
        num_steps=num_steps if num_steps is not None and num_steps > 0 else None,
        num_draft_tokens=drafted,
        num_accepted_tokens=accepted,
        doubt="more accepted than drafted" if accepted > drafted else None,
    )


def of_vllm_metrics(metrics: Mapping[str, Any]) -> Acceptance | None:
    """vLLM's `metrics.speculative_decoding` (server flag --per-request-spec-decode-metrics).

    Its mean is 1.0 also where no step was verified (an answer of one token, an n-gram drafter that found nothing):
    then there are counts of 0, and no mean.
    """
    figures = metrics.get("speculative_decoding")
    if not isinstance(figures, Mapping):
        return None
    num_steps = _count(figures.get("num_spec_steps"))
    accepted = _count(figures.get("num_accepted_draft_tokens"))
    mean = _number(figures.get("mean_acceptance_length"))
    if num_steps is None and mean is None:
        return None
    acceptance = Acceptance(
        source="metrics.speculative_decoding of the answer",
        num_steps=num_steps,
        num_draft_tokens=_count(figures.get("num_draft_tokens")),
        num_accepted_tokens=accepted,
        accepted_len_histogram=_counts(figures.get("acceptance_histogram")),
        accepted_len_by_step=_counts(figures.get("per_step_accepted")),
        stated_acceptance_len=None if num_steps == 0 else mean,
    )
    return _checked(acceptance)


def of_sglang_figures(figures: Mapping[str, Any], completion_tokens: int | None) -> Acceptance | None:
    """SGLang's `sglext.spec_tokens_details` or native `meta_info`, with the older names of 0.5.12 too.

    `spec_accept_length` is completion tokens over verify steps: it counts the token that the prefill sampled, so it
    is used only where the counts are missing.
    """
    num_steps = _count(figures.get("spec_verify_ct"))
    accepted = _count(_first_of(figures, "spec_num_correct_drafts", "spec_accepted_drafts"))
    drafted = _count(_first_of(figures, "spec_num_proposed_drafts", "spec_proposed_drafts"))
    histogram = _counts(
        _first_of(figures, "spec_correct_drafts_histogram", "spec_accept_histogram", "spec_acceptance_histogram")
    )
    stated = _number(figures.get("spec_accept_length"))
    if not num_steps:
        return None
    doubt = None
    source = "spec_* figures of the answer"
    if accepted is None and completion_tokens:
        accepted = max(0, completion_tokens - 1 - num_steps)
        source += "; accepted = completion tokens - 1 - spec_verify_ct"
    if accepted is not None:
        stated = None
    elif stated is not None:
        doubt = "spec_accept_length also counts the token that the prefill sampled"
    return _checked(
        Acceptance(
            source=source,
            num_steps=num_steps,
            num_draft_tokens=drafted,
            num_accepted_tokens=accepted,
            accepted_len_histogram=histogram or None,
            stated_acceptance_len=stated,
            doubt=doubt,
        )
    )


def of_deepdraft_usage(figures: Mapping[str, Any]) -> Acceptance | None:
    """`usage.speculation` of our own server: rounds, drafted nodes, a histogram, and where the rounds' time went.

    Its histogram counts what each round accepted, the last one included, which the end of the answer may have cut.
    """
    histogram = _counts(figures.get("accepted_len_histogram"))
    num_rounds = _count(figures.get("num_rounds"))
    if num_rounds is None or histogram is None:
        return None
    is_simulated = figures.get("is_simulated")
    acceptance = Acceptance(
        source="usage.speculation of the answer",
        num_steps=num_rounds,
        num_draft_tokens=_count(figures.get("num_draft_tokens")),
        num_accepted_tokens=sum(length * times for length, times in enumerate(histogram)),
        accepted_len_histogram=histogram,
        is_simulated=is_simulated if isinstance(is_simulated, bool) else None,
        parts=_step_parts(figures),
        decisions=_draft_decisions(figures),
    )
    rounds_doubt = None
    if sum(histogram) != num_rounds:
        rounds_doubt = f"the histogram counts {sum(histogram)} rounds, the total {num_rounds}"
    return _checked(replace(acceptance, doubt=rounds_doubt))


def _step_parts(figures: Mapping[str, Any]) -> StepParts | None:
    """Seconds by what they went into; None where there are none."""
    known = {name: _seconds(figures.get(name)) for name in (each.name for each in fields(StepParts))}
    return StepParts(**known) if any(value is not None for value in known.values()) else None


def _draft_decisions(figures: Mapping[str, Any]) -> DraftDecisions | None:
    """Steps by reason; None where the server tells none."""
    rounds, plain = (_counts_by_word(figures.get(f"{kind}_by_reason")) for kind in ("rounds", "plain_steps"))
    if not rounds and not plain:
        return None
    return DraftDecisions(
        rounds_by_reason=rounds,
        plain_steps_by_reason=plain,
        break_even_len=_number(figures.get("break_even_len")),
        expected_len=_number(figures.get("expected_len")),
    )


def _counts_by_word(value: object) -> dict[str, int]:
    if not isinstance(value, Mapping):
        return {}
    return {str(word): count for word, times in value.items() if (count := _count(times)) is not None}


def of_tensorrt_figure(tokens_per_iter: object) -> Acceptance | None:
    """TensorRT-LLM's `choices[].avg_decoded_tokens_per_iter`: a mean without counts. 1 is what a server without a
    drafter says too, so it tells nothing of a drafter."""
    stated = _number(tokens_per_iter)
    if stated is None or stated <= 1:
        return None
    return Acceptance(source="choices[].avg_decoded_tokens_per_iter of the answer", stated_acceptance_len=stated)


def of_counters(before: ServerReading, after: ServerReading) -> Acceptance | None:
    """The counts that the server's counters gained between two readings: of everything that it ran in between.

    None when the counters of drafts are missing, went backwards (a restart), or did not move.
    """
    drafts = gain("spec_drafts", before, after)
    drafted = gain("spec_draft_tokens", before, after)
    accepted = gain("spec_accepted_tokens", before, after)
    if drafts is None and drafted is None:
        return None
    if not drafts and not drafted:
        return None
    source = f"counters of {after.source} before and after"
    generated, requests = gain("generation_tokens", before, after), gain("num_requests", before, after)
    if accepted is None and drafts and generated and requests is not None:
        # SGLang counts verify steps but not accepted tokens. Each request's first token belongs to no step.
        accepted = max(0, generated - requests - drafts)
        source += "; accepted = generated tokens - requests - verify steps"
    at_depth: list[int] = []
    while (steps := gain(f"spec_accepted_at_{len(at_depth)}", before, after)) is not None:
        at_depth.append(steps)
    acceptance = Acceptance(
        source=source,
        num_steps=drafts,
        num_draft_tokens=drafted,
        num_accepted_tokens=accepted,
        accepted_at_depth=tuple(at_depth) or None,
    )
    return _checked(acceptance)


def of_gauge(
    before: ServerReading | None, after: ServerReading | None, decode_log_interval: int = 40
) -> Acceptance | None:
    """SGLang's avg_spec_accept_length: a mean over everything since the last flush, moved every so many steps.

    None when it did not move between the readings, or when it is not known whether it did: it then says nothing of
    what ran in between.
    """
    if before is None or after is None:
        return None
    value, earlier = after.gauges.get("spec_acceptance_len"), before.gauges.get("spec_acceptance_len")
    if value is None or value == earlier:
        return None
    return Acceptance(
        source="avg_spec_accept_length of the server",
        stated_acceptance_len=value,
        is_lifetime_average=True,
        doubt=f"it moves only every {decode_log_interval} decode steps and covers everything since the last flush",
    )


def _checked(acceptance: Acceptance) -> Acceptance:
    """Say it when the server's own figures don't fit each other."""
    steps, accepted = acceptance.num_steps, acceptance.num_accepted_tokens
    doubts = [acceptance.doubt] if acceptance.doubt else []
    if accepted is not None and acceptance.num_draft_tokens is not None and accepted > acceptance.num_draft_tokens:
        doubts.append("more tokens accepted than drafted")
    histogram = acceptance.accepted_len_histogram
    if histogram and steps and accepted is not None:
        counted = sum(length * times for length, times in enumerate(histogram))
        if abs(counted - accepted) > max(1, CONTRADICTION_FRAC * accepted):
            doubts.append(f"the histogram counts {counted} accepted tokens, the total {accepted}")
    if steps and accepted is not None and acceptance.stated_acceptance_len is not None:
        from_counts = 1 + accepted / steps
        if abs(from_counts - acceptance.stated_acceptance_len) > CONTRADICTION_FRAC * from_counts:
            doubts.append(
                f"the server states an acceptance length of {acceptance.stated_acceptance_len:.2f}, "
                f"its counts give {from_counts:.2f}"
            )
    return replace(acceptance, doubt="; ".join(doubts) or None)


def gain(name: str, before: ServerReading, after: ServerReading) -> int | None:
    """What a counter gained; None when the later reading lacks it or it went backwards. A counter that appears only
    afterwards started from nothing."""
    later = after.counters.get(name)
    if later is None:
        return None
    gained = later - before.counters.get(name, 0.0)
    return round(gained) if gained >= 0 else None


def _first_of(figures: Mapping[str, Any], *names: str) -> Any:
    return next((figures[name] for name in names if figures.get(name) is not None), None)


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value >= 0 and value == int(value) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def _counts(value: object) -> tuple[int, ...] | None:
    """A list of counts, or an object {"0": n, "1": m} as some versions write a histogram."""
    if isinstance(value, Mapping):
        by_len = {int(key): _count(entry) for key, entry in value.items() if str(key).isdigit()}
        if not by_len:
            return None
        value = [by_len.get(length, 0) for length in range(max(by_len) + 1)]
    if not isinstance(value, list | tuple):
        return None
    counts = [_count(entry) for entry in value]
    return tuple(count for count in counts if count is not None) if None not in counts else None
