from __future__ import annotations

import json
from typing import Any

from deepdraft.simulate.spec import Confounds, Physics

QUICK = Physics(prefill_a_s=0.05, prefill_b_s=1e-4, step_d_s=0.001)


def test_chat_stream(serve: Any, recorded_events: Any, lacking: Any) -> None:
    answered = serve(dialect="transformers", physics=QUICK).chat()
    recorded = recorded_events("transformers-5.24.0/chat_stream.sse")
    for position in (0, 1, -1):  # role, token, finish with usage
        ours = answered.events[position]
        assert lacking(recorded[position], ours) == []
        assert ours["choices"][0].keys() == recorded[position]["choices"][0].keys()
        assert ours.keys() == recorded[position].keys()
    assert recorded[0]["choices"] == answered.events[0]["choices"]
    assert "[DONE]" not in answered.text
    assert answered.is_complete and answered.headers["x-request-id"]


def test_completions_stream(serve: Any, recorded_events: Any, lacking: Any) -> None:
    answered = serve(dialect="transformers", physics=QUICK).complete()
    recorded = recorded_events("transformers-5.24.0/completions_stream.sse")
    for position in (0, -1):
        assert lacking(recorded[position], answered.events[position]) == []
        assert answered.events[position].keys() == recorded[position].keys()


def test_whole_answer_and_models(serve: Any, sample: Any, lacking: Any) -> None:
    served = serve(dialect="transformers", physics=QUICK)
    whole = served.chat(stream=False).json
    assert lacking(json.loads(sample("transformers-5.24.0/chat_nonstream.json")), whole) == []
    assert lacking(json.loads(sample("transformers-5.24.0/models.json")), served.get("/v1/models").json) == []
    assert served.get("/metrics").status == 404


def test_usage_comes_unasked(serve: Any) -> None:
    assert len(serve(dialect="transformers", physics=QUICK).chat(stream_options={}).usages) == 1


def test_unknown_fields_are_a_422(serve: Any) -> None:
    served = serve(dialect="transformers", physics=QUICK)
    refused = served.chat(ignore_eos=True)
    assert refused.status == 422
    assert refused.json == {"detail": "Unexpected fields in the request: {'ignore_eos'}"}
    assert served.complete([1, 2, 3]).status == 422
    assert served.chat(temperature=0.0, seed=1).status == 200


def test_prefixes_are_reused_silently(serve: Any) -> None:
    served = serve(dialect="transformers", physics=QUICK, confounds=Confounds(prefix_cache=True))
    for _ in range(2):
        answered = served.chat(" a" * 400)
    cold, warm = served.truths()
    assert warm.cached_len == 399
    assert cold.prefill_end_s - cold.received_s > 1.5 * (warm.prefill_end_s - warm.received_s)
    assert "cached" not in answered.text
