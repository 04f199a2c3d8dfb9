import dataclasses

import pytest
from report_builder import LENS, reference, sweep

from deepdraft.report.subject import Subject

pytest.importorskip("scipy", reason="laws need the extra `analysis`")

from deepdraft.report.fit import fit


def laws(subject):
    return {law.figure: law for law in fit([subject]).laws}


def test_the_laws_of_a_sweep_go_through_its_points():
    found = laws(Subject(name="plain", run=sweep()))
    tpot, ttft = found["tpot_s"], found["ttft_s"]
    assert tpot.context_lens[0] == LENS[0] and tpot.context_lens[-1] == LENS[-1]
    assert set(LENS) <= set(tpot.context_lens)
    for length, value in zip(tpot.context_lens, tpot.values, strict=True):
        assert value == pytest.approx(0.010 + 2e-7 * length, rel=0.01)
    for length, value in zip(ttft.context_lens, ttft.values, strict=True):
        assert value == pytest.approx(0.05 + 1e-4 * length + 1e-9 * length**2, rel=0.02)
    assert tpot.lows is not None and tpot.highs is not None
    assert all(low < y < high for low, y, high in zip(tpot.lows, tpot.values, tpot.highs, strict=True))
    assert tpot.formula.startswith("time a token = 10 ms [")
    assert "200 µs [" in tpot.formula and tpot.formula.endswith("a 1k tokens of context")


def test_too_few_points_give_no_law_and_say_what_would_tell():
    found = fit([Subject(name="plain", run=sweep(lens=(1_000, 4_000)))])
    assert found.laws == ()
    assert [one.figure for one in found.no_laws] == ["ttft_s", "tpot_s"]
    assert all("would tell" in one.reason for one in found.no_laws)


def test_a_point_in_doubt_takes_no_part():
    """Its prompts came from the cache: its TTFT is none."""
    run = sweep(lens=(*LENS, 128_000))
    requests = [
        dataclasses.replace(
            one,
            trace=dataclasses.replace(one.trace, usage=dataclasses.replace(one.trace.usage, cached_tokens=120_000)),
        )
        if one.prompt.asked_len == 128_000
        else one
        for one in run.measurements
    ]
    found = laws(Subject(name="plain", run=dataclasses.replace(run, measurements=tuple(requests))))
    assert found["ttft_s"].context_lens[-1] == 64_000
    assert found["tpot_s"].context_lens[-1] == 128_000


def test_the_reference_deployments_laws_name_what_speaks_against_them():
    found = laws(reference())
    assert found["ttft_s"].doubts[0].startswith("quadratic: yes")
    assert any("no straight line" in doubt for doubt in found["tpot_s"].doubts)
    assert found["tpot_s"].context_lens[0] == 1_400  # the log's point of another workload is on no curve


def test_a_run_without_points_has_no_laws():
    found = fit([Subject(name="none", run=sweep(lens=()))])
    assert (found.laws, found.no_laws) == ((), ())
