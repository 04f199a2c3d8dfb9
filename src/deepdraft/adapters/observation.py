"""What an answered probe shows of a server: which figures it reports, and whether it makes answers as long as asked.

Pure; which probes are sent is `probe`'s business.
"""

from __future__ import annotations

from dataclasses import replace

from deepdraft.adapters.field import CONTINUOUS_USAGE
from deepdraft.adapters.probe import Probe
from deepdraft.records import Capabilities, Ternary


def observed(
    probe: Probe,
    known: Capabilities,
    *,
    reports_cached_tokens: bool,
    states_acceptance: bool,
    exact_length_field: str | None,
    obeys_ignore_eos: Ternary,
) -> Capabilities:
    """The capabilities with what the probe shows.

    reports_cached_tokens, states_acceptance: whether this answer does, as the engine's adapter reads it.
    exact_length_field: the field that forces a length where ignore_eos is refused.
    obeys_ignore_eos: what it means that ignore_eos was accepted.
    """
    cached, acceptance = known.reports_cached_tokens, known.reports_acceptance
    if reports_cached_tokens:
        cached = "yes"
    elif cached != "yes":
        cached = "no"
    if states_acceptance:
        acceptance = "yes"
    elif known.speculation == "no":
        acceptance = "no"
    return replace(
        known,
        continuous_usage=_continuous_usage(probe, known),
        reports_cached_tokens=cached,
        reports_acceptance=acceptance,
        ignores_eos=_ignores_eos(probe, exact_length_field, obeys_ignore_eos),
    )


def _continuous_usage(probe: Probe, known: Capabilities) -> Ternary:
    events = probe.trace.events
    # meta_info: the native way to say the same with each event.
    is_stated = events.num_tokens_source in ("continuous usage", "meta_info")
    if is_stated and len(events.num_tokens or ()) > 1:
        return "yes"
    if CONTINUOUS_USAGE in probe.fields and len(events.num_chars) < 2:
        return known.continuous_usage  # one event proves nothing
    return "no"


def _ignores_eos(probe: Probe, exact_length_field: str | None, obeys_ignore_eos: Ternary) -> Ternary:
    if "ignore_eos" in probe.fields:
        tokens = None if probe.trace.usage is None else probe.trace.usage.completion_tokens
        return obeys_ignore_eos if tokens is None or tokens >= probe.max_tokens else "no"
    return "yes" if exact_length_field in probe.fields else "no"
