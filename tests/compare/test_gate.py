from dataclasses import replace

import pytest
from sweeps import Sweep, alternating, plain, reported_run

from deepdraft.compare.comparison import compare_runs
from deepdraft.compare.gate import GateLimit, gate_limits, gate_results
from deepdraft.errors import UsageError

LIMITS = (GateLimit(figure="tpot_s", limit_frac=0.05),)


def states(factor: float, *, noise_frac: float = 0.01, limits: tuple[GateLimit, ...] = LIMITS) -> set[str]:
    before, after = alternating(
        Sweep(noise_frac=noise_frac), Sweep(noise_frac=noise_frac, tpot=lambda n: factor * plain(n))
    )
    return {result.state for result in gate_results(compare_runs(before, after).points, limits)}


@pytest.mark.parametrize(("factor", "state"), [(1.2, "fail"), (1.0, "pass"), (0.5, "pass")])
def test_a_regression_fails_and_nothing_else(factor: float, state: str) -> None:
    assert states(factor) == {state}


def test_noise_fails_no_build() -> None:
    found = states(1.0, noise_frac=0.1)
    assert "fail" not in found
    assert "cannot tell" in found


def test_single_values_fail_no_build() -> None:
    found = compare_runs(reported_run({1_000: (70.0,)}), reported_run({1_000: (10.0,)}))
    (result,) = gate_results(found.points, LIMITS)
    assert (result.state, result.reason) == ("cannot tell", "single values: the noise is not known")


def test_a_figure_that_is_not_there_fails_no_build() -> None:
    (state,) = states(1.0, limits=(GateLimit(figure="output_tok_s", limit_frac=0.05),))
    assert state == "cannot tell"


def test_fewer_tokens_a_step_are_a_regression() -> None:
    found = compare_runs(*alternating(Sweep(), Sweep(tpot=lambda n: 0.5 * plain(n))))
    points = tuple(
        replace(
            point,
            verdicts=tuple(
                replace(one, figure="tokens_per_step") for one in point.verdicts if one.figure == "tpot_s"
            ),
        )
        for point in found.points
    )
    limits = (GateLimit(figure="tokens_per_step", limit_frac=0.05),)
    assert {result.state for result in gate_results(points, limits)} == {"fail"}


def test_limits_are_read() -> None:
    assert gate_limits("tpot=5%, ttft_s = 2.5 %") == (
        GateLimit(figure="tpot_s", limit_frac=0.05),
        GateLimit(figure="ttft_s", limit_frac=0.025),
    )


@pytest.mark.parametrize("text", ["", "tpot", "tpot=5", "speed=5%", "tpot=-5%", "tpot=5%,,"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--gate"):
        gate_limits(text)
