"""What the rules look at: one run with its points, the runs given beside it, what its reader knows, and the laws.

Laws are fitted once, when a rule first asks for one; a law that the data can't carry is a `CannotTell` with its
reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from deepdraft.cost.device import Device, known_device
from deepdraft.cost.floor import prefill_floor_s
from deepdraft.cost.known_model import known_model
from deepdraft.cost.model_json import ModelShape
from deepdraft.diagnosis.curve import Curve, GuardedPoint, curve
from deepdraft.diagnosis.facts import Facts
from deepdraft.diagnosis.words import Topic, words
from deepdraft.guards import guards_of
from deepdraft.guards.guard import PREFILL_FIGURES
from deepdraft.metrics import points_of
from deepdraft.records import Capabilities, Run
from deepdraft.stats.interval import CannotTell
from deepdraft.stats.knee import Knee, NoKnee, knee
from deepdraft.stats.law import LinearLaw, QuadraticLaw, linear_law, quadratic_law
from deepdraft.stats.segment import Segment, segment_slopes


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run to explain."""

    run: Run
    facts: Facts = field(default_factory=Facts)
    others: tuple[Case, ...] = ()
    """The other runs given, without others of their own."""
    name: str = "the run"
    """How a sentence calls it where there are several."""

    @property
    def capabilities(self) -> Capabilities:
        """What the server said of itself."""
        return self.run.header.capabilities

    @property
    def settings(self) -> Mapping[str, Any]:
        """The server's configuration as it states it."""
        return self.capabilities.settings

    @property
    def speculates(self) -> bool | None:
        """Whether a drafter is active; None when that is not known."""
        return {"yes": True, "no": False, "unknown": None}[self.capabilities.speculation]

    @cached_property
    def device(self) -> Device | None:
        """As given, else as the results file names it ("8 x RTX PRO 6000 Blackwell")."""
        named = self.run.header.spec.device
        if self.facts.device is not None or named is None:
            return self.facts.device
        return known_device(named)

    @cached_property
    def model(self) -> ModelShape | None:
        """As given, else as the model's name tells where its shape and the number of ranks are known."""
        named = self.capabilities.model
        if self.facts.model is not None or named is None or self._stated_tp_size is None:
            return self.facts.model
        return known_model(named)

    @property
    def tp_size(self) -> int:
        """Ranks that share the model, as given, else as the server states, else 1."""
        return self._stated_tp_size or 1

    @property
    def _stated_tp_size(self) -> int | None:
        if self.facts.tp_size is not None:
            return self.facts.tp_size
        config = self.settings.get("vllm_config")
        parallel = config.get("parallel_config") if isinstance(config, Mapping) else None
        said = (parallel if isinstance(parallel, Mapping) else self.settings).get("tensor_parallel_size")
        said = self.settings.get("tp_size", said)
        return said if isinstance(said, int) and said > 0 else None

    @property
    def kv_bytes_per_token(self) -> int | None:
        """Bytes of KV cache of a token on each device; None where the model is not known."""
        if self.model is None:
            return None
        said = "fp8" in str(self.settings.get("kv_cache_dtype", ""))
        element_bytes = self.facts.kv_element_bytes or (1 if said else 2)
        return self.model.kv_bytes_per_token(self.tp_size, element_bytes)

    def say(self, topic: Topic) -> str:
        """What to do about a topic, in this engine's flags."""
        return words(self.capabilities.engine, topic)

    @cached_property
    def points(self) -> tuple[GuardedPoint, ...]:
        """Every point of the run with its guards, by context length."""
        points = points_of(self.run)
        guarded = [
            GuardedPoint(point=point, guards=() if point.reported is not None else guards_of(self.run, point, points))
            for point in points
        ]
        return tuple(sorted(guarded, key=lambda each: each.context_len))

    @cached_property
    def _curves(self) -> dict[str, Curve]:
        return {}

    def curve(self, figure: str) -> Curve:
        """The figure's curve over context length."""
        if figure not in self._curves:
            impossible = {id(point) for point, _ in self.impossible_prefills} if figure in PREFILL_FIGURES else set()
            possible = [point for point in self.points if id(point) not in impossible]
            self._curves[figure] = curve(possible, figure)
        return self._curves[figure]

    @cached_property
    def mixed_workloads(self) -> tuple[GuardedPoint, ...]:
        """The points of one figure whose known workloads differ; none where all are alike."""
        for figure in ("tpot_s", "acceptance_len", "ttft_s"):
            having = [point for point in self.points if figure in point.point.figures and point.workload is not None]
            if len({point.workload for point in having}) > 1:
                return tuple(having)
        return ()

    @property
    def can_show_knee(self) -> bool:
        """False where times per token with a drafter were taken on several texts: acceptance then moves them."""
        return self.is_step_known or not self.mixed_workloads

    @cached_property
    def impossible_prefills(self) -> tuple[tuple[GuardedPoint, float], ...]:
        """Points whose TTFT is below the least time of their prefill, each with that time; they are on no curve."""
        if self.model is None or self.device is None:
            return ()
        found = []
        for point in self.points:
            limits = point.limits("ttft_s")
            floor_s = prefill_floor_s(self.model, self.device, point.context_len, self.tp_size)
            if limits is not None and floor_s is not None and limits[1] < floor_s:
                found.append((point, floor_s))
        return tuple(found)

    @property
    def is_step_known(self) -> bool:
        """Whether decode times are step times: no drafter, or steps that were counted or seen."""
        return self.speculates is False or len(self.step_curve.points) >= len(self.curve("tpot_s").points) > 0

    @cached_property
    def step_curve(self) -> Curve:
        """Step times, without reported ones that are not told apart from token times: empty then."""
        if self.speculates is False:
            return self.curve("tpot_s")
        own = [point for point in self.points if point.point.reported is None or _counts_steps(point)]
        return curve(own, "step_s")

    @property
    def decode_curve(self) -> Curve:
        """What laws of decode are fitted to: step times where they are known, else times per token."""
        return self.step_curve if self.is_step_known else self.curve("tpot_s")

    @cached_property
    def prefill_law(self) -> QuadraticLaw | CannotTell:
        """TTFT = a + b n + c n^2."""
        return quadratic_law(self.curve("ttft_s").observed)

    @cached_property
    def decode_law(self) -> LinearLaw | CannotTell:
        """Decode time = d + e n, of a step or a token (see `decode_curve`)."""
        return linear_law(self.decode_curve.observed)

    @cached_property
    def decode_segments(self) -> tuple[Segment, ...]:
        """The decode time's slope between neighbouring lengths."""
        return segment_slopes(self.decode_curve.observed)

    @cached_property
    def decode_knee(self) -> Knee | NoKnee | CannotTell:
        """Where the decode time leaves its law."""
        return knee(self.decode_curve.observed)

    @cached_property
    def baselines(self) -> tuple[Case, ...]:
        """The other runs without a drafter, for a run with one; else none."""
        if not self.speculates:
            return ()
        return tuple(other for other in self.others if other.speculates is False)


def _counts_steps(point: GuardedPoint) -> bool:
    """Whether a reported step time stands beside reported tokens a step above one, so that it is no token time."""
    said = point.point.reported.figures.get("tokens_per_step") if point.point.reported is not None else None
    return said is not None and max(said.values) > 1.0


def cases_of(runs: Iterable[tuple[str, Run]], facts: Facts) -> tuple[Case, ...]:
    """A case for each named run, each with the others beside it."""
    alone = [Case(run=run, facts=facts, name=name) for name, run in runs]
    return tuple(
        Case(
            run=case.run,
            facts=facts,
            name=case.name,
            others=tuple(other for other in alone if other is not case),
        )
        for case in alone
    )
