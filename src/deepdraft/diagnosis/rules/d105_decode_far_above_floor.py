"""Decode that reads the KV cache far below what the device can.

What it sees: KV bytes of a token over the slope of decode time: the rate at which the cache is read, against the
device's bandwidth and against what kernels attain with one stream.
Why it matters: it tells a slow kernel from a slow device: two orders below is never the memory.
Evidence needed: a slope, the model, the device.
Remedy: the decode or verify kernel, by the experiments of the hypotheses.
When it is wrong: a KV cache in another precision than assumed; acceptance that falls with the context.
"""

from __future__ import annotations

from deepdraft.cost.floor import decode_floor_s
from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.curve import Curve
from deepdraft.diagnosis.finding import Evidence, Finding, Hypothesis, by_support
from deepdraft.diagnosis.hypotheses.drafter_rescan import drafter_rescan
from deepdraft.diagnosis.hypotheses.no_cuda_graph import no_cuda_graph
from deepdraft.diagnosis.hypotheses.page_scatter import page_scatter
from deepdraft.diagnosis.hypotheses.serial_kv_walk import serial_kv_walk
from deepdraft.diagnosis.number import bytes_s, ms, percent, plain, times
from deepdraft.stats import median
from deepdraft.stats.interval import CannotTell

CODE = "D105"
NAME = "decode_far_above_floor"
GOOD_FRAC = 0.25
"""Of the bandwidth: what good kernels attain with one stream, where nothing was measured on the device."""
MIN_FACTOR = 2.0
MIN_GROWING_FRAC = 0.3
"""Of the decode time at the longest length that grew with the context; below it the slope carries nothing."""


def find(case: Case) -> tuple[Finding, ...]:
    """The finding, or what must be given to tell."""
    curve = case.decode_curve
    if len(curve.points) < 2 or curve.concurrency != 1:  # with several at once a step reads several caches
        return ()
    growing_s = curve.value(curve.last) - curve.value(curve.first)
    if growing_s < MIN_GROWING_FRAC * curve.value(curve.last):
        return ()
    kv_bytes = case.kv_bytes_per_token
    if kv_bytes is None or case.device is None:
        return (_not_given(case),)
    rates = [kv_bytes / slope for slope in _slopes(case)]
    if not rates:
        return ()
    rate = median(rates)
    attainable = case.device.attained_bytes_s(curve.last.context_len) or GOOD_FRAC * case.device.bandwidth_bytes_s
    if attainable < MIN_FACTOR * rate:
        return ()
    return (_finding(case, curve, rates, rate, attainable),)


def _slopes(case: Case) -> list[float]:
    """Seconds per token of context: the line's where one fits, else those between neighbouring lengths that rise."""
    law = case.decode_law
    if not isinstance(law, CannotTell) and not law.is_lacking and not law.is_impossible and law.slope.value > 0:
        return [law.slope.value]
    return [segment.slope.value for segment in case.decode_segments if segment.slope.value > 0]


def _finding(case: Case, curve: Curve, rates: list[float], rate: float, attainable: float) -> Finding:
    device, model = case.device, case.model
    assert device is not None and model is not None
    last = curve.last
    floor_s = decode_floor_s(model, device, last.context_len, case.tp_size)
    low, high = min(rates), max(rates)
    caveat = "" if case.is_step_known else " at most (less, if a step commits more than one token)"
    factor = device.bandwidth_bytes_s / rate
    return Finding(
        code=CODE,
        name=NAME,
        severity="warning",
        summary=f"Decode reads the KV cache at {_rates_text(low, high)} per device{caveat}, {times(factor)} below "
        f"the {bytes_s(device.bandwidth_bytes_s)} of {device.name}; kernels that split the KV axis attain about "
        f"{bytes_s(attainable)} at {last.name} with one stream. {ms(curve.value(last))} there is "
        f"{times(curve.value(last) / floor_s)} the floor of one step ({ms(floor_s)}).",
        evidence=(
            Evidence(
                name="KV bytes per token", value=float(case.kv_bytes_per_token or 0), unit="B", source=model.name
            ),
            Evidence(name="effective bandwidth", value=rate, unit="B/s", source="KV bytes / slope, the median slope"),
            Evidence(name="share of the bandwidth", value=percent(rate / device.bandwidth_bytes_s)),
            Evidence(name="attainable", value=attainable, unit="B/s", source=_attained_source(case)),
            Evidence(name="decode_floor_s", value=floor_s, unit="s", source=last.name),
        ),
        remedy="Run the experiment of the best supported hypothesis first; each needs one long length only.",
        hypotheses=_hypotheses(case, curve, rate, attainable),
        worth=min(attainable / rate, curve.value(last) / floor_s),
    )


def _rates_text(low: float, high: float) -> str:
    if plain(low / 1e9) == plain(high / 1e9):
        return bytes_s(low)
    return f"{bytes_s(low)} to {bytes_s(high)}"


def _attained_source(case: Case) -> str:
    if case.device is not None and case.device.attained:
        return "per-operation measurements of this device, batch 1"
    return f"{100 * GOOD_FRAC:.0f} % of the bandwidth, as good kernels attain with one stream"


def _hypotheses(case: Case, curve: Curve, rate: float, attainable: float) -> tuple[Hypothesis, ...]:
    growing = 1 - curve.value(curve.first) / curve.value(curve.last)
    causes = [
        serial_kv_walk(case, rate),
        page_scatter(case, attainable / rate),
        no_cuda_graph(case, growing),
    ]
    if case.speculates:
        causes.append(drafter_rescan(case))
    return by_support(causes)


def _not_given(case: Case) -> Finding:
    lacking = [
        flag for flag, value in (("--model config.json", case.model), ("--device NAME", case.device)) if value is None
    ]
    return Finding(
        code=CODE,
        name=NAME,
        severity="unknown",
        summary=f"How far decode is from what the device can do can't be told without {' and '.join(lacking)}.",
        remedy=f"Give {' and '.join(lacking)} (and --tp where the model is shared out).",
    )
