"""Every third request fails in a known way: all of those, and only those, must be counted as failures."""

from __future__ import annotations

from dataclasses import replace

from deepdraft.metrics import points_of
from deepdraft.records import Limits, SweepSpec
from deepdraft.selftest.check import Check, Error, swept
from deepdraft.simulate.patterns import FAULTS
from deepdraft.simulate.process import running

PROMPT_LEN = 300
_LIMITS = Limits(first_token_s=1.5, stall_s=1.0, num_retries=0, server_wait_s=5.0)


def checks() -> tuple[Check, ...]:
    """A check a kind of fault."""
    return tuple(_check(name) for name in FAULTS)


def _check(name: str) -> Check:
    def run(num_repeats: int) -> tuple[Error, ...]:
        simulated = FAULTS[name]
        # Short probes must not be counted among the requests that fail: the fault looks at long prompts only.
        faults = tuple(replace(fault, min_prompt_len=PROMPT_LEN - 10) for fault in simulated.faults)
        spec = SweepSpec(
            url="selftest",
            context_lens=(PROMPT_LEN,),
            decode_len=48,
            num_repeats=max(3, num_repeats),
            num_warmups=0,
            limits=_LIMITS,
            endpoint="chat",
        )
        with running(replace(simulated, dialect="vllm", faults=faults)) as server:
            run_, problem = swept(server, spec)
            truths = server.truths()
        if problem is not None:
            raise problem
        struck = sum(1 for truth in truths if truth.fault is not None)
        failed = [measurement for measurement in run_.measurements if measurement.failure is not None]
        (point,) = points_of(run_)
        counted = sum(1 for trial in point.trials for request in trial.measured)
        is_clean = counted == len(run_.measurements) - len(failed)
        share = None if not struck else 100.0 * len(failed) / struck if is_clean else 0.0
        words = failed[0].failure.message if failed and failed[0].failure else ""
        return (
            Error(name="failures counted", value=share, target=100.0, unit="%", is_floor=True, note=words[:60]),
            Error(name="good ones lost", value=float(max(0, len(failed) - struck)), target=0, unit=""),
        )

    return Check(name=name, about="every third request", run=run)
