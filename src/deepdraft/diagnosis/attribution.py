"""Where the time of a decode step goes: parts that can be computed or were measured, and the residual that remains.

The parts and the residual sum to what was measured; the residual is printed, never hidden. Where the tokens a step
are not known the time is that of a token, and with more than one token a step each part is an upper bound.

Measured parts: a server may tell what each part of its steps took (then nothing is computed for that length, and the
residual is what lies between its clock and the client's). A source may give seconds summed over an answer (figures
of a reported point beside the catalogue, whose definition says "summed over the answer": a profile's buckets); a run
without the drafter gives what drafting and verifying add. Computed parts are floors: weights and KV cache read once
at full bandwidth, two all-reduces a layer at their measured latency; without CUDA graphs launches are estimated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from deepdraft.cost.floor import step_weight_bytes
from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.curve import GuardedPoint
from deepdraft.diagnosis.mode import is_eager
from deepdraft.diagnosis.pairing import pairs
from deepdraft.metrics import STEP_PARTS

_KERNELS_A_LAYER = 10
_LAUNCH_S = 5e-6
_BUCKET = "summed over the answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A share of the time."""

    name: str
    seconds: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """One length."""

    context_len: int
    per: Literal["step", "token", "answer"]
    measured_s: float | None
    """None: the source gives parts, and not the tokens of the answer that would give the whole."""
    parts: tuple[Part, ...]

    @property
    def residual_s(self) -> float | None:
        """What the parts leave of the measured time: everything not known. Below zero the parts contradict it."""
        return None if self.measured_s is None else self.measured_s - sum(part.seconds for part in self.parts)


def attributions(case: Case) -> tuple[Attribution, ...]:
    """One for each length of the decode curve, and one for each reported point with buckets, by growing length."""
    buckets = [found for point in case.points if (found := _from_buckets(point)) is not None]
    told = [found for point in case.points if (found := _from_server(point)) is not None]
    told_lens = {each.context_len for each in told}
    floors = _from_floors(case) if case.model is not None and case.device is not None else ()
    computed = [each for each in floors if each.context_len not in told_lens]
    return tuple(sorted((*computed, *told, *buckets), key=lambda each: each.context_len))


def _from_server(point: GuardedPoint) -> Attribution | None:
    """The step of the sample in the middle, with its own parts; None at load, where steps are shared."""
    whole_s = point.median("step_s")
    if whole_s is None or point.point.concurrency != 1 or point.is_hit:
        return None
    having = [each for each in point.point.samples if "step_s" in each.figures and "step_verify_s" in each.figures]
    if not having:
        return None
    middle = min(having, key=lambda each: abs(each.figures["step_s"] - whole_s)).figures
    parts = tuple(
        Part(name=name, seconds=middle[f"step_{name}_s"], source=f"{what}, by the server's clock")
        for name, what in STEP_PARTS.items()
        if f"step_{name}_s" in middle
    )
    return Attribution(context_len=point.context_len, per="step", measured_s=middle["step_s"], parts=parts)


def _from_buckets(point: GuardedPoint) -> Attribution | None:
    reported = point.point.reported
    if reported is None:
        return None
    parts = tuple(
        Part(name=name.removesuffix("_s"), seconds=figure.values[0], source="measured by the source")
        for name, figure in reported.figures.items()
        if _BUCKET in (figure.definition or "") and figure.values
    )
    tpot_s = point.median("tpot_s")
    if not parts:
        return None
    whole_s = tpot_s * (reported.decode_len - 1) if tpot_s is not None and reported.decode_len else None
    return Attribution(context_len=point.context_len, per="answer", measured_s=whole_s, parts=parts)


def _from_floors(case: Case) -> tuple[Attribution, ...]:
    curve = case.decode_curve
    if not curve.points or curve.concurrency != 1:
        return ()
    extra_s = _draft_and_verify_s(case)
    return tuple(
        Attribution(
            context_len=point.context_len,
            per="step" if case.is_step_known else "token",
            measured_s=curve.value(point),
            parts=tuple(_floor_parts(case, point, extra_s.get(point.context_len))),
        )
        for point in curve.points
    )


def _floor_parts(case: Case, point: GuardedPoint, extra_s: float | None) -> list[Part]:
    model, device, kv_bytes = case.model, case.device, case.kv_bytes_per_token
    assert model is not None and device is not None and kv_bytes is not None
    weights_s = step_weight_bytes(model, 1, case.tp_size) / device.bandwidth_bytes_s
    kv_s = kv_bytes * point.context_len / device.bandwidth_bytes_s
    parts = [
        Part(name="weights", seconds=weights_s, source="floor: weights of one token at full bandwidth"),
        Part(name="KV read", seconds=kv_s, source="floor: KV cache once at full bandwidth"),
    ]
    if case.tp_size > 1 and device.all_reduce_s is not None:
        num_reductions = 2 * model.num_layers
        parts.append(
            Part(
                name="collectives",
                seconds=num_reductions * device.all_reduce_s,
                source=f"{num_reductions} all-reduces of one token, as measured on this device",
            )
        )
    if is_eager(case):
        launches_s = model.num_layers * _KERNELS_A_LAYER * _LAUNCH_S
        parts.append(Part(name="launches", seconds=launches_s, source="estimate: 10 kernels a layer, 5 us each"))
    if extra_s is not None and extra_s > 0:
        parts.append(
            Part(name="draft and verify", seconds=extra_s, source="step with the drafter - step without, measured")
        )
    return parts


def _draft_and_verify_s(case: Case) -> dict[int, float]:
    """What the drafter adds to a step at each length, where a run without it has the same."""
    if not case.is_step_known:
        return {}
    return {
        pair.context_len: pair.own_value - pair.other_value
        for baseline in case.baselines
        for pair in pairs(case, baseline, "step_s")
    }
