from __future__ import annotations

from typing import Any

from deepdraft.simulate.spec import Physics


def test_models_and_unknown_paths(serve: Any) -> None:
    served = serve()
    (card,) = served.get("/v1/models").json["data"]
    assert card["id"] == "sim" and card["owned_by"] == "openai"
    missing = served.get("/server_info")
    assert missing.status == 404 and missing.json["error"]["message"]


def test_context_limit(serve: Any) -> None:
    served = serve(physics=Physics(prefill_a_s=0.001, step_d_s=0.001, max_context_len=100))
    assert served.complete(" a" * 90, max_tokens=10).status == 200
    refused = served.complete(" a" * 91, max_tokens=10)
    assert refused.status == 400
    assert refused.json["error"]["code"] == "context_length_exceeded"
    assert "100 tokens" in refused.json["error"]["message"]


def test_neither_continuous_usage_nor_token_ids(serve: Any) -> None:
    served = serve()
    options = {"include_usage": True, "continuous_usage_stats": True}
    answered = served.chat(stream_options=options, return_token_ids=True)
    assert len(answered.usages) == 1
    assert "token_ids" not in answered.text
