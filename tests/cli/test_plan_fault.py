"""What `deepdraft plan` can't use is said in one line, with what to do."""

from __future__ import annotations

import pytest
from tests.cli.plan_log import sglang_log

MODEL = ("plan", "qwen3-8b", "--device", "H100", "--engine", "sglang")


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("plan",), "which model?", "--pool"),
        (("plan", "qwen3-8b", "--device", "H100"), "which engine?", "--engine"),
        (("plan", "qwen3-8b", "--engine", "sglang"), "which device?", "--device"),
        (("plan", "no-such", "--engine", "sglang", "--device", "H100"), "no-such", "bundled"),
        (("plan", "qwen3-8b", "--engine", "sglang", "--device", "Z9"), "Z9", "name one of"),
        ((*MODEL, "--max-model-len", 4096), "is a flag of vLLM, not of SGLang", "--context-length"),
        ((*MODEL, "-c", 4096), "is a flag of llama.cpp, not of SGLang", "--context-length"),
        ((*MODEL, "--gpu-memory-utilization", 0.9), "is a flag of vLLM", "--mem-fraction-static"),
        ((*MODEL, "--num-speculative-tokens", 3), "is a flag of vLLM", None),
        ((*MODEL, "--mem-fraction-static", 1.2), "not a fraction", "--help"),
        ((*MODEL, "--tp", 0), "not a whole number", "--help"),
        ((*MODEL, "--weight-bytes", "many"), "not an amount of memory", "--help"),
        ((*MODEL, "--requests", 2), "--requests has no use here", "--target-context"),
        ((*MODEL, "--margin", 0.1), "--margin has no use here", "--target-context"),
        ((*MODEL, "--started-with", "tp-size=2"), "--started-with has no use here", "--server-log"),
        ((*MODEL, "--started-with", "tp-size"), "not FLAG=VALUE", "--help"),
        ((*MODEL, "--json", "--emit", "command"), "--emit has no use here", "alone"),
        ((*MODEL, "--pool", "0.9"), "not FRACTION=TOKENS", "--help"),
        (("plan", "--pool", "0.9=1000"), "which model?", "--pool"),
        (("plan", "--pool", "0.9=1000", "--pool", "0.9=2000"), "one fraction", "two fractions"),
        (("plan", "--engine", "llamacpp", "--pool", "0.9=1000", "--pool", "0.8=900"), "no fraction", "--ctx-size"),
        ((*MODEL, "--pool", "0.9=1000", "--server", "http://h"), "one measured start", None),
        ((*MODEL, "--speculative-algorithm", "EAGLE"), "needs the drafter", "--drafter"),
        ((*MODEL, "--target-context", "300k"), "is made for", "--context-length"),
        ((*MODEL, "--kv-cache-dtype", "fp17"), "fp17", None),
        ((*MODEL, "--html", "/no/such/folder/page.html"), "can't write", None),
    ],
)
def test_one_line(called, words, message, hint) -> None:
    ran = called(*words)
    assert ran.code in (2, 5), ran.out
    said, advice = ran.said
    assert message in said
    assert hint is None or hint in (advice or "")
    assert ran.out == ""


def test_an_unknown_attention_is_refused_by_name(called, tmp_path) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        '{"model_type": "new_thing", "architectures": ["NewThingForCausalLM"], "num_hidden_layers": 2, '
        '"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, '
        '"intermediate_size": 128, "max_position_embeddings": 4096, "layer_types": ["full_attention", "hyper_hyena"]}'
    )
    ran = called("plan", config, "--engine", "sglang", "--device", "H100")
    assert ran.code == 2
    assert "hyper_hyena" in ran.said[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello\nworld\n", "is no log of SGLang, vLLM or llama.cpp"),
        ('{"a": 1}\n', "is no log of SGLang, vLLM or llama.cpp"),
        (
            "[2026-11-20 10:06:51 TP0] Prefill batch, #new-seq: 1, #new-token: 4096, #cached-token: 0, token usage: "
            "0.02, #running-req: 0, #queue-req: 0, input throughput (token/s): 1820.00\n",
            "does not reach back to the server's start",
        ),
    ],
)
def test_a_log_without_the_lines(called, tmp_path, text, message) -> None:
    path = tmp_path / "server.log"
    path.write_text(text)
    ran = called("plan", "qwen3-8b", "--device", "H100", "--server-log", path)
    assert ran.code == 2
    said, hint = ran.said
    assert message in said
    assert hint


def test_a_log_that_is_not_there(called) -> None:
    ran = called("plan", "qwen3-8b", "--device", "H100", "--server-log", "gone.log")
    assert ran.code == 5
    assert "can't read gone.log" in ran.said[0]


def test_a_log_of_another_engine(called, tmp_path) -> None:
    path = tmp_path / "server.log"
    path.write_text(sglang_log(0.94, 218_484, 4.2))
    ran = called("plan", "qwen3-8b", "--device", "H100", "--engine", "vllm", "--server-log", path)
    assert ran.code == 2
    assert "is of sglang, --engine says vllm" in ran.said[0]


def test_a_log_that_does_not_tell_its_fraction(called, tmp_path) -> None:
    path = tmp_path / "server.log"
    path.write_text(sglang_log(0.94, 218_484, 4.2, has_arguments=False))
    words = (
        "plan", "kimi-k2.6", "--drafter", "kimi-k2.6-dflash", "--device", "RTX PRO 6000", "--tp", 8,
        "--engine-version", "0.5.12", "--server-log", path, "--mem-fraction-static", 0.85,
    )  # fmt: skip
    ran = called(*words)
    assert ran.code == 2
    said, hint = ran.said
    assert "does not tell the --mem-fraction-static" in said
    assert hint is not None and "--started-with mem-fraction-static=" in hint
    told = called(*words, "--started-with", "mem-fraction-static=0.94", "--json").json
    assert told["kv_pool_tokens"] == pytest.approx(101_134, rel=2e-3)


def test_a_url_that_answers_nothing(called, port) -> None:
    for flag in ("--server", "--check"):
        ran = called(*MODEL, flag, f"http://127.0.0.1:{port}")
        assert ran.code == 3
        assert "Connection refused" in ran.said[0]
        assert ran.out == ""


def test_a_drafter_for_vllm_needs_its_tokens(called) -> None:
    ran = called(
        "plan",
        "kimi-k2.6",
        "--drafter",
        "kimi-k2.6-dflash",
        "--engine",
        "vllm",
        "--device",
        "RTX PRO 6000",
        "--tp",
        8,
    )
    assert ran.code == 2
    assert "--num-speculative-tokens" in (ran.said[1] or "")
