"""The laws of servers that obey them, measured over HTTP by real sweeps. Most coverage is on synthetic curves (see
test_law); these few see what a client adds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from deepdraft.bench.progress import Progress
from deepdraft.bench.sweep import sweep
from deepdraft.metrics import points_of
from deepdraft.metrics.observed import observed_of
from deepdraft.records import Run, SweepSpec
from deepdraft.simulate.process import running
from deepdraft.simulate.spec import Physics, SimulateSpec
from deepdraft.stats.knee import Knee, knee
from deepdraft.stats.law import LinearLaw, QuadraticLaw, linear_law, quadratic_law
from deepdraft.transport.tls import TlsOptions

LENGTHS = (250, 500, 1_000, 2_000, 4_000)
PHYSICS = Physics(
    prefill_a_s=0.02, prefill_b_s=2e-5, prefill_c_s=2e-8, step_d_s=0.008, step_e_s=4e-6, noise_frac=0.02
)
_STEP_S = 0.001
"""What a client on a busy machine may add to the time of a step."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, least_disturbed: Any) -> Run:
    """A sweep of a server with known laws, by a client that was held up little."""

    def lag_s(run: Run) -> float:
        lags_s = sorted(trial.loop_lag_max_s or 0.0 for trial in run.trials)
        return lags_s[-1 - len(lags_s) // 10]

    found: Run = least_disturbed(lambda: swept(tmp_path_factory.mktemp("law")), lag_s, enough=0.005, num_attempts=3)
    return found


def swept(folder: Path) -> Run:
    path = folder / "run.jsonl"
    with running(SimulateSpec(dialect="vllm", physics=PHYSICS)) as server:
        spec = SweepSpec(url=server.url, context_lens=LENGTHS, decode_len=8)
        outcome = asyncio.run(
            sweep(
                spec,
                url=server.url,
                path=path,
                is_resumed=False,
                headers={},
                admin_headers={},
                tls=TlsOptions(),
                progress=Progress(num_trials=0, stream=None),
                command_line=(),
            )
        )
    assert outcome.problem is None and outcome.run is not None
    return outcome.run


def test_the_decode_law_is_found(run: Run) -> None:
    law = linear_law(observed_of(points_of(run), "tpot_s"))
    assert isinstance(law, LinearLaw)
    for estimate, truth, slack in (
        (law.slope, PHYSICS.step_e_s, _STEP_S / 4_000),
        (law.intercept, PHYSICS.step_d_s, _STEP_S),
        (law.at(3_000), PHYSICS.step_d_s + 3_000 * PHYSICS.step_e_s, _STEP_S),
    ):
        interval = estimate.interval
        assert interval is not None
        assert interval.low - slack <= truth <= interval.high + slack


def test_the_prefill_law_is_found(run: Run) -> None:
    law = quadratic_law(observed_of(points_of(run), "ttft_s"))
    assert isinstance(law, QuadraticLaw)
    assert law.is_quadratic == "yes"
    interval = law.c.interval
    assert interval is not None
    assert 0.9 * interval.low <= PHYSICS.prefill_c_s <= 1.1 * interval.high


def test_a_straight_server_has_no_knee(run: Run) -> None:
    assert not isinstance(knee(observed_of(points_of(run), "tpot_s")), Knee)
