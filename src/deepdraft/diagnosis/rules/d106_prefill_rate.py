"""Prefill attention far below the device's arithmetic peak.

What it sees: attention's operations over the quadratic term of TTFT: the rate attention is computed at, per device,
in the expanded and (with a latent) in the absorbed form.
Why it matters: at 100k and more prefill is attention; a factor here is a factor of TTFT.
Evidence needed: a quadratic law of TTFT, the model, the device's peak.
Remedy: the prefill kernel, or its form; chunking by the engine.
When it is wrong: TTFT that holds queueing; other precision than the peak stands for.
"""

from __future__ import annotations

from deepdraft.cost.device import Device
from deepdraft.cost.floor import attention_prefill_flops
from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.hypotheses.absorbed_prefill import absorbed_prefill
from deepdraft.diagnosis.number import flops, percent
from deepdraft.stats.interval import CannotTell

CODE = "D106"
NAME = "prefill_far_below_peak"
MAX_FRAC = 0.25
"""Of the peak: attention kernels on matching hardware attain more."""
AS_SEEN_FACTOR = 2.0


def find(case: Case) -> tuple[Finding, ...]:
    """The finding; none where the law or the facts are missing."""
    law, model, device = case.prefill_law, case.model, case.device
    if isinstance(law, CannotTell) or model is None or device is None or device.flops is None:
        return ()
    if law.is_quadratic != "yes" or law.c.value <= 0:
        return ()
    per_square = law.c.value * case.tp_size
    expanded = attention_prefill_flops(model, 1.0) / per_square
    absorbed = attention_prefill_flops(model, 1.0, is_absorbed=True) / per_square
    if absorbed > MAX_FRAC * device.flops:
        return ()
    has_latent = model.attention == "latent"
    forms = f"{flops(expanded)} per device" + (
        f" as expanded attention, {flops(absorbed)} if it is computed in absorbed form," if has_latent else ""
    )
    cause = absorbed_prefill(case)
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="warning",
            summary=f"Prefill attention runs at {forms} of a peak of {flops(device.flops)}: "
            f"{percent(absorbed / device.flops)} at most.{_as_seen(device, expanded, absorbed)}",
            evidence=(
                Evidence(name="expanded form", value=expanded, unit="FLOP/s", source="attention operations / c"),
                Evidence(name="absorbed form", value=absorbed, unit="FLOP/s", source="attention operations / c"),
                Evidence(name="peak", value=device.flops, unit="FLOP/s", source=device.name),
            ),
            remedy=f"Try {case.say('attention_backend')} for prefill; keep long prefixes cached.",
            hypotheses=(cause,) if cause is not None else (),
            worth=min(MAX_FRAC * device.flops / absorbed, 10.0),
        ),
    )


def _as_seen(device: Device, expanded: float, absorbed: float) -> str:
    """Whether the rate is what such a kernel was seen to attain: then prefill is as expected for it."""
    seen = device.prefill_attention_flops
    if seen is None:
        return ""
    low, high = seen / AS_SEEN_FACTOR, seen * AS_SEEN_FACTOR
    verdict = "about as expected for" if low <= absorbed and expanded <= high else "not what is expected of"
    return f" A Triton prefill kernel was seen at {flops(seen)} on this device: this is {verdict} such a kernel."
