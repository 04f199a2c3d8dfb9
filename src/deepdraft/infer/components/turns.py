"""Turns: the component, its peers and the machine's rates one after the other, forwards and backwards by turns, so
that what slows the machine slows them all alike. One pass through all of them is a repeat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from deepdraft.infer.components.clock import least_s
from deepdraft.records.component import ComponentCase, ComponentRepeat

DEFAULT_NUM_REPEATS = 5
DEFAULT_CELL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Whoever waits for the results."""

    is_asked_to_stop: Callable[[], bool] = lambda: False
    """Asked between two turns; what was measured by then is kept."""
    report: Callable[[str], None] = lambda _: None
    """Told what is measured next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How often and how long."""

    num_repeats: int = DEFAULT_NUM_REPEATS
    cell_s: float = DEFAULT_CELL_S
    """Each turn of one side: the least of the runs that fit in, at least one."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


def timing(*, num_repeats: int, cell_s: float, is_cpu_only: bool) -> Timing:
    """On a GPU where torch has one and the component can use it, else on the CPU."""
    is_gpu = torch.cuda.is_available() and not is_cpu_only
    return Timing(num_repeats=num_repeats, cell_s=cell_s, device=torch.device("cuda" if is_gpu else "cpu"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A case ready to run."""

    name: str
    facts: Mapping[str, Any]
    run: Callable[[], object]
    peers: Mapping[str, Callable[[], object]]
    work: Mapping[str, float]
    """As in `ComponentCase.work`."""
    rates: Mapping[str, Callable[[], float]]
    """How each ceiling is measured, a second."""
    note: str | None = None


def measured(candidate: Candidate, how: Timing, watch: Watch) -> ComponentCase | None:
    """All repeats, or those that were done when the stop was asked for; None: not one was."""
    repeats: list[ComponentRepeat] = []
    with torch.inference_mode():
        for run in (candidate.run, *candidate.peers.values()):
            run()
        for index in range(how.num_repeats):
            repeat = _repeat(candidate, how, watch, is_backwards=index % 2 == 1)
            if repeat is None:
                break
            repeats.append(repeat)
    if not repeats:
        return None
    return ComponentCase(
        name=candidate.name,
        facts=dict(candidate.facts),
        work=dict(candidate.work),
        repeats=tuple(repeats),
        note=candidate.note,
    )


def cases_of(candidates: Iterable[Candidate], how: Timing, watch: Watch) -> Iterator[ComponentCase]:
    """Each candidate's case; ends early where that is asked for. Candidates are made when their turn comes."""
    waiting = iter(candidates)
    while not watch.is_asked_to_stop() and (candidate := next(waiting, None)) is not None:
        watch.report(candidate.name)
        case = measured(candidate, how, watch)
        if case is not None:
            yield case


def _repeat(candidate: Candidate, how: Timing, watch: Watch, *, is_backwards: bool) -> ComponentRepeat | None:
    def timed(run: Callable[[], object]) -> Callable[[], float]:
        return lambda: least_s(run, how.cell_s, how.device, is_warm=True)

    sides: dict[tuple[str, str], Callable[[], float]] = {("rate", name): of for name, of in candidate.rates.items()}
    sides["own", ""] = timed(candidate.run)
    sides |= {("peer", name): timed(run) for name, run in candidate.peers.items()}
    found: dict[tuple[str, str], float] = {}
    for side in reversed(sides) if is_backwards else sides:
        if watch.is_asked_to_stop():
            return None
        found[side] = sides[side]()
    return ComponentRepeat(
        seconds=found["own", ""],
        rates={name: found["rate", name] for name in candidate.rates},
        peers_s={name: found["peer", name] for name in candidate.peers},
    )
