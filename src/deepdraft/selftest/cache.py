"""A rerun that a prefix cache serves must be flagged every time, a clean one never."""

from __future__ import annotations

from dataclasses import replace

from deepdraft.guards import guards_of
from deepdraft.metrics import points_of
from deepdraft.records import Run, SweepSpec
from deepdraft.selftest.check import Check, Error, swept
from deepdraft.simulate.patterns import PATTERNS
from deepdraft.simulate.process import running
from deepdraft.simulate.spec import DialectName, SimulateSpec

_DIALECTS: tuple[DialectName, ...] = ("vllm", "sglang", "llamacpp")
_SPEC = SweepSpec(
    url="selftest", context_lens=(512, 1024), decode_len=16, num_repeats=3, num_warmups=1, endpoint="chat"
)


def checks() -> tuple[Check, ...]:
    """Contaminated and clean, in each dialect."""
    return (
        Check(name="contaminated_rerun", about="the same prompts again, cache left on", run=_contaminated),
        Check(name="clean_rerun", about="the same command twice, cache on", run=_clean),
    )


def _server(dialect: DialectName) -> SimulateSpec:
    cached = PATTERNS["prefix_cache"]
    return replace(cached, dialect=dialect, confounds=replace(cached.confounds, cached_tokens_report="usage"))


def _contaminated(_num_repeats: int) -> tuple[Error, ...]:
    flagged = []
    for dialect in _DIALECTS:
        with running(_server(dialect)) as server:
            run, problem = swept(server, replace(_SPEC, keep_cache=True))
            if problem is not None:
                raise problem
        flagged += _violations(run)
    return (_share("flagged", flagged, target=100.0, is_floor=True),)


def _clean(_num_repeats: int) -> tuple[Error, ...]:
    flagged = []
    for dialect in _DIALECTS:
        with running(_server(dialect)) as server:
            for _ in range(2):
                run, problem = swept(server, _SPEC)
                if problem is not None:
                    raise problem
                flagged += _violations(run)
    return (_share("flagged", flagged, target=0.0, is_floor=False),)


def _violations(run: Run) -> list[bool]:
    """For each point, whether the guard on the prefix spoke."""
    return [
        report.state == "violated"
        for point in points_of(run)
        for report in guards_of(run, point)
        if report.name == "cold_prefix"
    ]


def _share(name: str, flagged: list[bool], *, target: float, is_floor: bool) -> Error:
    share = 100.0 * sum(flagged) / len(flagged) if flagged else None
    return Error(
        name=name,
        value=share,
        target=target,
        unit="%",
        is_floor=is_floor,
        note=f"{sum(flagged)} of {len(flagged)} points",
    )
