"""What a server says of itself, and flushing its cache."""

from __future__ import annotations

import torch

from deepdraft.infer.kernels.select import attention_backend
from deepdraft.version import VERSION

LONG = {"prompt": "x", "max_tokens": 240, "temperature": 0, "ignore_eos": True}


def test_health_and_ready(reciter) -> None:
    assert (reciter.get("/health").status, reciter.get("/health").json) == (200, {"status": "ok"})
    assert (reciter.get("/ready").status, reciter.get("/ready").json) == (200, {"status": "ready"})


def test_models(reciter) -> None:
    cards = reciter.get("/v1/models").json["data"]
    assert [card["id"] for card in cards] == ["reciter", "other-name"]
    assert cards[0]["owned_by"] == "deepdraft"
    assert cards[0]["max_model_len"] == 256
    assert reciter.get("/v1/models/reciter").json == cards[0]
    missing = reciter.get("/v1/models/some/other")
    assert (missing.status, missing.error["code"]) == (404, "model_not_found")


def test_server_info_tells_what_takes_effect(serving, random_folder) -> None:
    with serving(random_folder, kv_pool_tokens=510, page_size=4, chunk_len=8, has_radix_cache=False) as server:
        info = server.get("/server_info").json
    assert info["engine"] == "deepdraft"
    assert info["version"] == VERSION
    assert info["model_type"] == "llama"
    assert info["max_context_len"] == 256
    assert (info["kv_pool_tokens"], info["kv_pool_pages"], info["page_size"]) == (512, 128, 4)
    assert info["kv_bytes_per_token"] == 2 * 2 * 2 * 8 * 4  # layers, key and value, heads, width, bytes
    assert info["kv_pool_bytes"] == info["predicted_kv_pool_bytes"] == 512 * info["kv_bytes_per_token"]
    assert info["attention_backend"] == attention_backend(None, torch.device("cpu")).name
    assert info["has_radix_cache"] is False
    assert info["chunked_prefill_size"] == 8
    assert info["num_threads"] == 1
    assert info["versions"].keys() == {"deepdraft", "python", "torch"}
    assert info["state"] == {
        "is_draining": False,
        "num_open": 0,
        "num_running": 0,
        "num_waiting": 0,
        "free_pages": 128,
        "held_pages": 0,
        "cached_pages": 0,
    }


def test_flush_makes_the_next_request_cold(serving, random_folder) -> None:
    prompt = "a prompt of some pages"
    with serving(random_folder) as server:

        def cached() -> int:
            usage = server.complete(prompt, max_tokens=2).json["usage"]
            return usage["prompt_tokens_details"]["cached_tokens"]

        assert cached() == 0
        assert cached() > 0
        assert server.metric('deepdraft:kv_pool_pages{state="cached"}') > 0
        reply = server.post("/flush_cache")
        assert (reply.status, reply.json["success"]) == (200, True)
        assert server.metric('deepdraft:kv_pool_pages{state="cached"}') == 0
        assert server.metric('deepdraft:kv_pool_pages{state="free"}') == 128
        assert cached() == 0
        assert server.get("/flush_cache").status == 200


def test_no_flush_while_requests_are_open(reciter) -> None:
    with reciter.send("/v1/completions", LONG):
        reciter.wait_until(lambda: reciter.get("/server_info").json["state"]["num_open"] == 1)
        reply = reciter.post("/flush_cache")
        assert (reply.status, reply.error["code"]) == (400, "cache_in_use")
    reciter.wait_until_idle()
    assert reciter.post("/flush_cache").status == 200


def test_without_a_radix_cache_nothing_is_reused(serving, random_folder) -> None:
    with serving(random_folder, has_radix_cache=False) as server:
        for _ in range(2):
            usage = server.complete("a prompt of some pages", max_tokens=1).json["usage"]
            assert usage["prompt_tokens_details"]["cached_tokens"] == 0
        assert server.post("/flush_cache").status == 200


def test_version(reciter) -> None:
    assert reciter.get("/version").json == {"version": VERSION, "engine": "deepdraft"}


def test_paths_and_methods_that_are_not_there(reciter) -> None:
    missing = reciter.get("/v1/embeddings")
    assert missing.status == 404
    assert missing.error["type"] == "invalid_request_error"
    wrong = reciter.get("/v1/completions")
    assert wrong.status == 405
    assert "POST" in wrong.headers["allow"]
    assert wrong.error["message"]
