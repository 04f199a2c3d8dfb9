"""Findings from real sweeps of servers that were made to have the fault."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from diagnosis_runs import found

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "truth"))

from truth_run import DRAFTED, QUICK, sweep, sweep_spec, untimed

from deepdraft.simulate.spec import Confounds, SimulateSpec

CACHE = Confounds(prefix_cache=True, cached_tokens_report="usage")


def simulated(physics=QUICK, confounds=None, dialect="sglang"):
    return SimulateSpec(dialect=dialect, physics=physics, confounds=confounds or Confounds())


def findings_of(server, spec):
    swept = untimed(server, spec)
    assert swept.problem is None
    return found(swept.run)


def test_prompts_that_were_cached():
    findings = findings_of(
        simulated(confounds=CACHE), sweep_spec(400, 900, decode_len=8, num_repeats=3, keep_cache=True)
    )
    assert "prefix cache" in findings["D301"].summary


def test_answers_that_ended_early():
    stops = Confounds(eos_at=5, eos_beats_ignore_eos=True)
    findings = findings_of(simulated(confounds=stops), sweep_spec(400, decode_len=16))
    assert "ended early" in findings["D303"].summary


def test_a_server_that_cuts_prompts_silently():
    cuts = Confounds(truncate_prompt_to=500)
    findings = findings_of(simulated(confounds=cuts), sweep_spec(900, decode_len=8))
    assert "labelled 900 tokens has 500" in findings["D302"].summary


def test_a_pool_below_the_context_limit():
    small = replace(QUICK, kv_pool_tokens=4_000, max_context_len=8_000)
    findings = findings_of(simulated(small), sweep_spec(400, decode_len=8))
    assert "4,000" in findings["D401"].summary and "--mem-fraction-static" in findings["D401"].remedy


def test_text_that_flatters_the_drafter():
    findings = findings_of(simulated(DRAFTED), sweep_spec(400, decode_len=16, text="repeat"))
    assert "flatters" in findings["D213"].summary


def test_a_clean_server_has_none_of_it():
    findings = findings_of(simulated(confounds=CACHE), sweep_spec(400, 900, decode_len=8))
    assert not {"D301", "D302", "D303", "D305", "D401", "D213", "D201", "D206", "D207"} & set(findings)


@pytest.mark.parametrize("dialect", ["sglang", "llamacpp", "vllm"])
def test_counts_of_a_drafter_agree_with_themselves(dialect):
    findings = findings_of(simulated(DRAFTED, dialect=dialect), sweep_spec(400, 900, decode_len=32))
    assert not {"D201", "D206", "D207", "D208", "D209"} & set(findings)


def test_decode_that_grows_is_found_with_its_slope(least_disturbed):
    """3 ms a step and 1 ms more per 1k tokens; a busy machine may add to it, so the slope may be a third off."""
    grows = simulated(replace(QUICK, step_e_s=1e-6))

    def slope() -> float:
        finding = found(sweep(grows, sweep_spec(500, 4_000, 16_000, decode_len=12)).run).get("D104")
        evidence = finding.evidence if finding is not None else ()
        slopes = [float(str(each.value).split()[0]) for each in evidence if each.name == "slope"]
        return slopes[-1] if slopes else 0.0

    assert least_disturbed(slope, lambda seen: abs(seen - 1), enough=0.2) == pytest.approx(1.0, rel=0.33)
