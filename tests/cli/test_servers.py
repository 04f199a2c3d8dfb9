"""`deepdraft servers`: what the adapter found, every unknown said as such."""

from __future__ import annotations

import pytest

from deepdraft.cli.servers import capabilities_text
from deepdraft.records import Capabilities


@pytest.mark.parametrize("dialect", ["sglang", "vllm", "llamacpp", "openai"])
def test_what_was_found(called, simulated, physics, dialect) -> None:
    server = simulated(dialect=dialect, physics=physics(kv_pool_tokens=50_000, max_context_len=40_000))
    ran = called("servers", server.url)
    assert ran.code == 0, ran.err
    assert ran.err == ""
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 80
    said = {line[:22].strip(): line[22:].strip() for line in lines if line[:1] != " "}
    assert said["engine"].startswith(dialect)
    assert said["model"] == "sim"
    # SGLang keeps a few tokens of the context back from prompts; a plain OpenAI server tells nothing.
    limits = {"sglang": "39,994 tokens", "vllm": "40,000 tokens", "llamacpp": "40,000 tokens", "openai": "unknown"}
    assert said["hard limit"] == limits[dialect]


def test_as_json(called, plain) -> None:
    found = called("servers", plain.url, "--json").json
    assert found["engine"] == "vllm"
    assert found["kv_pool_tokens"] == 1_000_000
    assert found["num_slots"] is None


def test_nothing_there(called, port) -> None:
    ran = called("servers", f"http://127.0.0.1:{port}")
    assert ran.code == 3
    assert "Connection refused" in ran.said[0]
    assert ran.out == ""


def test_a_url_that_is_none(called) -> None:
    ran = called("servers", "ftp://127.0.0.1")
    assert ran.code == 2
    assert "not a web address" in ran.said[0]


def test_unknown_is_said_and_long_lines_wrap() -> None:
    found = Capabilities(
        engine="sglang",
        detected_by="/server_info",
        settings={"mem_fraction_static": 0.93, "tp_size": None, "nested": {"a": 1}, "attention_backend": "triton"},
        doubts=("the server refuses ignore_eos and says so with a great many words " * 3,),
    )
    lines = capabilities_text(found).splitlines()
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "model                  unknown" in text
    assert "context limit          unknown" in text
    assert "hard limit             unknown" in text
    assert "mem_fraction_static = 0.93" in text
    assert 'attention_backend = "triton"' in text
    assert "tp_size" not in text
    assert "nested" not in text
    assert "4 known" in text
