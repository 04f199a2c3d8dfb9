"""`deepdraft plan` as a user runs it: the reference deployment's figures, forward, back and calibrated."""

from __future__ import annotations

import re
import shlex

import pytest
from tests.cli.plan_log import VLLM_LOG, sglang_log

GIB = 2**30
MIB = 2**20
DEPLOYMENT = (
    "plan", "kimi-k2.6", "--drafter", "kimi-k2.6-dflash", "--device", "RTX PRO 6000", "--engine", "sglang",
)  # fmt: skip
FLAGS = (
    "--tp", 8, "--context-length", "200k", "--attention-backend", "triton", "--speculative-algorithm", "DFLASH",
    "--speculative-num-draft-tokens", 8,
)  # fmt: skip
OLD = ("--engine-version", "0.5.12")
REPORTED = {0.85: 101_134, 0.92: 192_400, 0.93: 205_400, 0.94: 218_484}
RESERVE_GB = {0.85: 12.22, 0.94: 4.2}


@pytest.fixture
def log(tmp_path):
    """The log of a start at a fraction."""

    def write(fraction, **options):
        path = tmp_path / f"start_{fraction}.log"
        path.write_text(sglang_log(fraction, REPORTED[fraction], RESERVE_GB[fraction], **options))
        return path

    return write


def entry(plan, name):
    return next(one["num_bytes"] for one in plan["ledger"] if one["name"] == name)


@pytest.mark.parametrize("fraction", [0.85, 0.94])
def test_from_config_device_and_weights_alone_within_5_percent(called, fraction) -> None:
    plan = called(*DEPLOYMENT, *OLD, *FLAGS, "--mem-fraction-static", fraction, "--json").json
    assert plan["kv_pool_tokens"] == pytest.approx(REPORTED[fraction], rel=0.05)
    low, high = plan["kv_pool_tokens_range"]
    assert low <= REPORTED[fraction] <= high
    assert plan["bytes_per_token"] == 77_184
    assert plan["target_bytes_per_token"] == 70_272
    assert plan["true_bytes_per_token"] == 73_344
    assert plan["is_calibrated"] is False


@pytest.mark.parametrize("measured", [0.85, 0.94])
@pytest.mark.parametrize("fraction", REPORTED)
def test_calibrated_from_either_point_every_fraction_within_two_in_a_thousand(
    called, log, measured, fraction
) -> None:
    ran = called(*DEPLOYMENT, *OLD, "--server-log", log(measured), "--mem-fraction-static", fraction, "--json")
    assert ran.code == 0, ran.err
    assert ran.json["kv_pool_tokens"] == pytest.approx(REPORTED[fraction], rel=2e-3)
    assert ran.json["bytes_per_token"] == 77_184
    assert ran.json["is_calibrated"] is True


def test_the_start_itself_is_reproduced_with_its_reserve(called, log) -> None:
    plan = called(*DEPLOYMENT, *OLD, "--server-log", log(0.94), "--json").json
    assert plan["kv_pool_tokens"] == pytest.approx(218_484, abs=1)
    assert plan["reserve_bytes"] == pytest.approx(4.2 * GIB, rel=1e-6)
    assert plan["flags"]["tp_size"] == 8
    assert plan["flags"]["mem_fraction_static"] == 0.94


def test_the_wrong_version_is_noticed(called, log) -> None:
    """By the start's own figures: what was free, and the pool that came of it."""
    right = called(*DEPLOYMENT, *OLD, "--server-log", log(0.94), "--json").json
    assert not any("implies" in note for note in right["notes"])
    wrong = called(*DEPLOYMENT, "--engine-version", "0.5.23", "--server-log", log(0.94), "--json").json
    assert "start_0.94.log implies 77,1" in wrong["notes"][0]
    assert "0.5.23 counts 73,344" in wrong["notes"][0]


def test_the_reserves_that_were_reported(called, log) -> None:
    for fraction, reserve_gb in ((0.92, 6.2), (0.93, 5.2)):
        plan = called(*DEPLOYMENT, *OLD, "--server-log", log(0.94), "--mem-fraction-static", fraction, "--json").json
        assert plan["reserve_bytes"] / GIB == pytest.approx(reserve_gb, abs=0.3)


@pytest.mark.parametrize(("chunk", "mib"), [(8192, 896), (4096, 448), (2048, 224)])
def test_the_experts_buffer(called, chunk, mib) -> None:
    plan = called(
        *DEPLOYMENT, *OLD, *FLAGS, "--mem-fraction-static", 0.93, "--chunked-prefill-size", chunk, "--json"
    ).json
    assert entry(plan, "experts' down-projection") == mib * MIB


def test_a_note_of_half_the_half_is_answered(called) -> None:
    """The deployment wrote of 224 MiB at half the chunk."""
    text = called(*DEPLOYMENT, *OLD, *FLAGS, "--mem-fraction-static", 0.94, "--chunked-prefill-size", 8192).out
    flat = " ".join(text.split())
    assert "896 MiB at 8,192 tokens, 448 MiB at 4,096" in flat
    assert "quarter" in flat


def test_the_setting_that_died_and_the_one_that_held(called, log) -> None:
    died = called(*DEPLOYMENT, *OLD, "--server-log", log(0.94), "--chunked-prefill-size", 8192, "--json").json
    assert died["verdict"]["outcome"] == "out_of_memory_in_prefill"
    assert died["verdict"]["fails_at_len"] <= 32_000  # it died in a prefill of 32k
    held = called(
        *DEPLOYMENT, *OLD, "--server-log", log(0.94), "--mem-fraction-static", 0.93, "--chunked-prefill-size", 4096,
        "--expandable-segments", "--json",
    ).json  # fmt: skip
    assert held["verdict"]["outcome"] == "safe"
    assert held["max_request_tokens"] >= 199_000
    probe = " ".join(held["verdict"]["advice"])
    assert "probe at the longest context" in probe


def test_without_a_start_the_verdicts_are_the_same(called) -> None:
    common = (*DEPLOYMENT, *OLD, *FLAGS, "--max-running-requests", 8, "--json", "--mem-fraction-static")
    died = called(*common, 0.94, "--chunked-prefill-size", 8192).json
    held = called(*common, 0.93, "--chunked-prefill-size", 4096, "--expandable-segments").json
    assert died["verdict"]["outcome"] == "out_of_memory_in_prefill"
    assert held["verdict"]["outcome"] == "safe"


def test_a_drafter_counts_as_its_version_counts_it_and_truly(called) -> None:
    common = (*FLAGS, "--mem-fraction-static", 0.94, "--json")
    old = called(*DEPLOYMENT, *OLD, *common).json
    new = called(*DEPLOYMENT, "--engine-version", "0.5.23", *common).json
    none = called(
        "plan", "kimi-k2.6", "--device", "RTX PRO 6000", "--engine", "sglang", *OLD, *FLAGS[:6], "--json"
    ).json
    assert (old["bytes_per_token"], new["bytes_per_token"], none["bytes_per_token"]) == (77_184, 73_344, 70_272)
    assert old["true_bytes_per_token"] == new["true_bytes_per_token"] == 73_344

    def place(plan):
        return {one["place"] for one in plan["ledger"] if one["name"].startswith("draft weights")}

    # Loaded after the pool was sized, beside the fraction; and before, inside it.
    assert (place(old), place(new), place(none)) == ({"slack"}, {"weights"}, set())
    assert entry(old, "draft weights") == entry(new, "draft weights") > GIB
    assert entry(old, "draft KV pool") > 0


def test_a_named_drafter_drafts(called) -> None:
    plan = called(*DEPLOYMENT, *OLD, "--tp", 8, "--json").json
    assert plan["flags"]["speculative_algorithm"] == "DFLASH"


@pytest.mark.parametrize(("moment", "word"), [("start", "raise"), ("prefill", "Lower")])
def test_which_way_to_turn(called, moment, word) -> None:
    ran = called(*DEPLOYMENT, *OLD, *FLAGS, "--mem-fraction-static", 0.94, "--died", moment)
    first = ran.out.splitlines()[2:4]
    assert f"{word} --mem-fraction-static" in " ".join(" ".join(first).split())
    other = {"raise": "lower", "Lower": "raise"}[word]
    assert other not in ran.out.splitlines()[2].lower()


def test_the_flags_for_200k(called, log) -> None:
    ran = called(*DEPLOYMENT, *OLD, "--server-log", log(0.94), "--target-context", "200k", "--requests", 1)
    assert ran.code == 0, ran.err
    assert max(map(len, ran.out.splitlines())) <= 80
    assert ran.out.startswith("To hold 1 x 200,000 tokens with 2 % to spare")
    assert "--mem-fraction-static 0.93" in ran.out
    assert "--chunked-prefill-size 4096" in ran.out
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in ran.out
    assert "What each flag frees" in ran.out
    as_json = called(
        *DEPLOYMENT, *OLD, "--server-log", log(0.94), "--target-context", "200k", "--margin", 0.05, "--json"
    ).json
    assert as_json["wish"] == {"target_context_len": 200_000, "num_requests": 1, "margin_frac": 0.05}
    assert as_json["kv_pool_tokens"] >= 210_000
    assert as_json["given"]["kv_pool_tokens"] == pytest.approx(218_484, abs=1)
    assert all(option["holds"] for option in as_json["options"])
    assert as_json["levers"]


def test_emits_a_command_that_makes_the_same_plan(called, log) -> None:
    wish = (*DEPLOYMENT, *OLD, "--server-log", log(0.94), "--target-context", "200k")
    planned = called(*wish, "--json").json
    text = called(*wish, "--emit", "command").out.replace(" \\\n ", "")
    words = shlex.split(text)
    start = words.index("--mem-fraction-static")
    assert words[: words.index("--model-path")] == ["python", "-m", "sglang.launch_server"]
    again = called(*DEPLOYMENT[:2], *DEPLOYMENT[4:], *OLD, *words[start:], "--json").json
    assert {name: value for name, value in again["flags"].items() if name != "chosen"} == {
        name: value for name, value in planned["flags"].items() if name != "chosen"
    }


def test_emits_a_unit(called) -> None:
    ran = called(
        *DEPLOYMENT, *OLD, *FLAGS, "--mem-fraction-static", 0.94, "--expandable-segments", "--emit", "systemd"
    )
    assert "ExecStart=/usr/bin/env python -m sglang.launch_server \\\n" in ran.out
    assert "Environment=PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" in ran.out
    assert ran.out.startswith("[Unit]\n")


def test_a_command_that_will_die_is_said_to(called) -> None:
    ran = called(
        *DEPLOYMENT, *OLD, *FLAGS, "--mem-fraction-static", 0.96, "--chunked-prefill-size", 16384, "--emit", "command"
    )
    assert "run out of memory" in ran.err
    assert ran.out.startswith("python -m sglang.launch_server")


def test_the_printed_plan(called, log) -> None:
    ran = called(
        *DEPLOYMENT, *OLD, "--server-log", log(0.94), "--mem-fraction-static", 0.93, "--fractions", "0.85,0.92,0.94"
    )
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("kimi-k2.6 with kimi-k2.6-dflash on 8 x RTX PRO 6000 Blackwell")
    assert lines[2] in ("SAFE", "TIGHT", "RUNS OUT OF MEMORY IN A PREFILL")
    pools = {
        float(frac): int(n.replace(",", "")) for frac, n in re.findall(r"^[> ] +(0\.\d+) +([\d,]+)", ran.out, re.M)
    }
    assert pools == {f: pytest.approx(n, rel=2e-3) for f, n in REPORTED.items()}


def test_two_pools_need_no_model(called) -> None:
    pools = ("--pool", "0.85=101134", "--pool", "0.94=218,484")
    ran = called("plan", *pools, "--mem-fraction-static", 0.92, "--target-context", "200k", "--margin", 0)
    assert "13,039 tokens for each 0.01 of" in " ".join(ran.out.split())
    assert "200,000 tokens fit from --mem-fraction-static 0.926 on." in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80
    found = called("plan", *pools, "--mem-fraction-static", 0.93, "--json").json
    assert found["kv_pool_tokens"] == pytest.approx(205_400, rel=2e-3)
    listed = called("plan", *pools, "--fractions", "0.92,0.93", "--json").json["pools"]
    assert [one["fraction"] for one in listed] == [0.92, 0.93]
    assert listed[0]["kv_pool_tokens"] == pytest.approx(192_400, rel=2e-3)
    too_much = called("plan", *pools, "--target-context", "1M").out
    assert "at no fraction below 1" in too_much


def test_two_pools_and_a_model_have_a_verdict_too(called) -> None:
    plan = called(
        *DEPLOYMENT, *OLD, *FLAGS, "--pool", "0.85=101134", "--pool", "0.94=218484", "--mem-fraction-static", 0.93,
        "--json",
    ).json  # fmt: skip
    assert plan["kv_pool_tokens"] == pytest.approx(205_400, rel=2e-3)
    assert plan["verdict"]["outcome"]


def test_vllm_and_its_log(called, tmp_path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(VLLM_LOG)
    ran = called("plan", "qwen3-8b", "--device", "RTX PRO 6000", "--server-log", path, "--json")
    assert ran.code == 0, ran.err
    assert ran.json["engine"] == "vllm"
    assert ran.json["kv_pool_tokens"] == pytest.approx(485_760, rel=1e-3)
    higher = called(
        "plan",
        "qwen3-8b",
        "--device",
        "RTX PRO 6000",
        "--server-log",
        path,
        "--gpu-memory-utilization",
        0.94,
        "--json",
    ).json
    grown = 0.04 * 97_887 * MIB / 147_456
    assert higher["kv_pool_tokens"] - ran.json["kv_pool_tokens"] == pytest.approx(grown, rel=0.01)


def test_llamacpp_on_a_host_without_a_device(called) -> None:
    plan = called("plan", "qwen3-8b", "--engine", "llamacpp", "-c", 10_000, "-np", 4, "--json").json
    # Each slot's 2,500 cells become 2,560.
    assert (plan["kv_pool_tokens"], plan["max_context_len"]) == (10_240, 2560)
    half = called(
        "plan", "qwen3-8b", "--engine", "llamacpp", "-c", 10_000, "-np", 4, "-ctk", "q8_0", "-ctv", "q8_0", "--json"
    ).json
    assert half["bytes_per_token"] / plan["bytes_per_token"] == pytest.approx(34 / 64)


def test_the_page(called, tmp_path) -> None:
    ran = called(*DEPLOYMENT, *OLD, *FLAGS, "--mem-fraction-static", 0.94, "--html", "plan.html")
    assert ran.code == 0
    page = (tmp_path / "plan.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "<svg" in page
    assert "kimi-k2.6" in page


def test_sources_on_demand(called) -> None:
    common = (*DEPLOYMENT, *OLD, *FLAGS, "--mem-fraction-static", 0.94)
    assert "(Triton's" not in called(*common).out
    assert "(Triton's" in called(*common, "--sources").out
