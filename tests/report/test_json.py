import dataclasses
import json
import math

import msgspec
from trace_builder import header, recorded, repeats, request, steady, trace, trial

from deepdraft.metrics import FIGURE_NAMES
from deepdraft.records import End, Note, Refusal, Run
from deepdraft.report import results_object


def numbers(value):
    if isinstance(value, dict):
        for entry in value.values():
            yield from numbers(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from numbers(entry)
    elif isinstance(value, float):
        yield value


def full_run():
    run = repeats(*[steady(64, ttft_s=ttft) for ttft in (0.50, 0.51, 0.505)], speculation="no")
    return dataclasses.replace(
        run,
        refusals=(Refusal(context_len=200_000, concurrency=1, reason="exceeds the KV pool"),),
        notes=(Note(at_s=1.0, topic="wait", message="the server restarted"),),
        ends=(End(at_s=40.0, outcome="complete"),),
        damage=("line 9 can't be read",),
    )


def test_the_object_holds_what_is_promised():
    result = results_object(full_run())
    assert (result["schema_version"], result["engine"], result["is_complete"]) == (1, "llamacpp", True)
    (point,) = result["points"]
    assert (point["context_len"], point["asked_context_len"], point["concurrency"]) == (1000, 1000, 1)
    assert point["ttft_s"] == {"median": 0.505, "low": 0.5, "high": 0.51, "num_samples": 3}
    assert set(FIGURE_NAMES) <= set(point)
    assert point["acceptance_len"] is None
    assert point["step_s"]["num_samples"] == 3
    assert point["sources"]["step_s"] == ["no drafter is active: a step is a token"]
    assert {guard["name"]: guard["state"] for guard in point["guards"]}["cold_prefix"] == "verified"
    assert set(point["guards"][0]) == {"name", "state", "evidence", "doubts"}
    assert result["refusals"] == [{"context_len": 200_000, "concurrency": 1, "reason": "exceeds the KV pool"}]
    assert result["notes"] == [{"at_s": 1.0, "topic": "wait", "message": "the server restarted"}]
    assert result["damage"] == ["line 9 can't be read"]
    assert result["definitions"]["tpot_s"]["unit"] == "s/token"


def test_it_is_json_without_nan_also_for_odd_streams():  # C12
    odd = [
        trace([(0.05 + 0.005 * place, "r") for place in range(20)], usage=20),
        trace([(0.1, "t")], usage=1),
        trace([(0.1, "t")] * 5, usage=5),
        recorded("llama.cpp-2026-10/spec_ngram_mod.sse"),
    ]
    result = results_object(repeats(*odd))
    assert json.loads(msgspec.json.encode(result)) == json.loads(json.dumps(result, allow_nan=False))
    assert all(math.isfinite(number) for number in numbers(result))


def test_too_few_samples_have_a_bound_for_a_percentile():  # C50
    (point,) = results_object(repeats(*[steady(8)] * 12))["points"]
    assert point["percentiles"]["ttft_s"]["p99"] == {"value": None, "bound": "≥ max of 12"}
    assert point["percentiles"]["ttft_s"]["p50"] == {"value": 0.5, "bound": None}


def test_every_failure_of_the_file_is_listed():
    failed = request(trace([(0.1, "t"), (0.2, "t")], usage=2), failed="the stream ended early", started_at_s=105.0)
    old = request(trace([]), failed="stalled", started_at_s=5.0)
    warm = request(trace([]), "warmup-0", failed="refused", is_warmup=True)
    run = Run(header=header(), measurements=(warm, old, failed), trials=(trial(started_at_s=100.0),))
    failures = results_object(run)["failures"]
    assert [(one["message"], one["is_counted"], one["is_warmup"]) for one in failures] == [
        ("refused", False, True),
        ("stalled", False, False),
        ("the stream ended early", True, False),
    ]
    assert failures[2]["output_tokens"] == 2
    assert failures[2]["concurrency"] == 1


def test_needles_and_doubts():
    run = repeats(steady(64, cached=None))
    run = dataclasses.replace(run, measurements=(dataclasses.replace(run.measurements[0], needle_found=True),))
    (point,) = results_object(run)["points"]
    assert point["needle"] == {"num_found": 1, "num_asked": 1}
    assert point["in_doubt"]["ttft_s"] == {"violated": [], "not_verifiable": ["cold_prefix"]}
    assert results_object(full_run())["points"][0]["needle"] is None


def test_an_empty_run():
    result = results_object(Run(header=header()))
    assert (result["points"], result["outcome"], result["is_complete"]) == ([], None, False)
