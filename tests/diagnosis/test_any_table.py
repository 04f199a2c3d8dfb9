"""Whatever a table holds, explaining it ends: no crash, no line too long, JSON that is JSON."""

import json
from dataclasses import replace

from diagnosis_runs import DEVICE, cases, header, kimi
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepdraft.diagnosis.explain import explanation
from deepdraft.diagnosis.facts import Facts
from deepdraft.diagnosis.finding import in_order
from deepdraft.diagnosis.json_object import explanations_object
from deepdraft.diagnosis.text import explanations_text
from deepdraft.records import Acceptance, Reported, ReportedFigure, Run

FIGURES = ("ttft_s", "tpot_s", "decode_tok_s", "prefill_tok_s", "step_s", "tokens_per_step", "acceptance_len")
FIGURES += ("accepted_len", "output_tok_s", "verify_s", "server_decode_tok_s")
values = st.floats(min_value=1e-6, max_value=1e6)
figure = st.builds(
    ReportedFigure,
    values=st.lists(values, min_size=1, max_size=3).map(tuple),
    half_width=st.none() | st.floats(min_value=0, max_value=10),
    definition=st.sampled_from([None, "ms/step", "verify, summed over the answer"]),
)
counts = st.none() | st.integers(min_value=0, max_value=500)
many_counts = st.none() | st.lists(st.integers(min_value=0, max_value=50), max_size=20).map(tuple)
acceptance = st.builds(
    Acceptance,
    source=st.just("a log"),
    num_steps=counts,
    num_draft_tokens=counts,
    num_accepted_tokens=counts,
    accepted_at_depth=many_counts,
    accepted_len_histogram=many_counts,
    accepted_len_by_step=many_counts,
    stated_acceptance_len=st.none() | st.floats(min_value=0, max_value=20),
    is_lifetime_average=st.booleans(),
)
lens = st.integers(min_value=1, max_value=500_000)
point = st.builds(
    Reported,
    asked_context_len=st.none() | lens,
    context_len=lens,
    concurrency=st.sampled_from([1, 1, 1, 4]),
    decode_len=st.none() | st.integers(min_value=1, max_value=200),
    figures=st.dictionaries(st.sampled_from(FIGURES), figure, max_size=5),
    acceptance=st.none() | acceptance,
    is_cold=st.sampled_from([None, True, False]),
    workload=st.sampled_from([None, "prose", "repetitive"]),
)
run = st.builds(
    lambda points, **said: Run(header=header(**said), reported=tuple(points)),
    st.lists(point, max_size=9),
    speculation=st.sampled_from(["yes", "no", "unknown"]),
    engine=st.sampled_from(["sglang", "vllm", "llamacpp", "imp"]),
    kv_pool_tokens=st.none() | lens,
    max_context_len=st.none() | lens,
    page_size=st.sampled_from([None, 1, 16]),
    settings=st.sampled_from([{}, {"enforce_eager": True}, {"chunked_prefill_size": 8192}, {"tp_size": "eight"}]),
)
facts = st.sampled_from(
    [
        Facts(),
        Facts(model=kimi(), device=DEVICE, tp_size=8, reserve_bytes=1e9),
        Facts(model=kimi(), device=replace(DEVICE, flops=None)),
        Facts(device=DEVICE),
    ]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(run, min_size=1, max_size=2), facts)
def test_any_table_is_explained(runs, known):
    explanations = [explanation(case) for case in cases(*runs, facts=known)]
    text = explanations_text(explanations)
    assert all(len(line) <= 80 for line in text.splitlines())
    json.dumps(explanations_object(explanations), allow_nan=False)
    for each in explanations:
        assert each.findings == in_order(each.findings)
        for row in each.attributions:
            if row.measured_s is not None:
                assert abs(sum(part.seconds for part in row.parts) + row.residual_s - row.measured_s) < 1e-6
