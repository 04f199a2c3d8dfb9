"""The printed plan: 80 columns, verdict first, every entry of the ledger with its certainty."""

from __future__ import annotations

import re

import pytest
from tests.planner.deployment import (
    CARD,
    KIMI,
    QWEN,
    calibrated,
    kimi,
    qwen_llamacpp,
    qwen_vllm,
    sglang,
)

from deepdraft.planner.back import settings_for
from deepdraft.planner.check import checks
from deepdraft.planner.died import died_advice
from deepdraft.planner.engines import plan_for
from deepdraft.planner.flag import changed
from deepdraft.planner.fractions import plans_by_fraction
from deepdraft.planner.lever import freed_by_flag
from deepdraft.planner.settings import LlamacppSettings, SglangSettings, VllmSettings
from deepdraft.planner.text import OUTCOMES, plan_text
from deepdraft.planner.text_option import checks_text, died_text, options_text

PLANS = {
    "calibrated": calibrated(sglang()),
    "estimated": kimi(sglang(max_running_requests=64, context_length=262_144)),
    "no start": kimi(sglang(mem_fraction_static=0.5)),
    "newest": plan_for("sglang", None, KIMI, CARD, sglang()),
    "vllm": qwen_vllm(),
    "vllm no start": qwen_vllm(VllmSettings(gpu_memory_utilization=0.99)),
    "llamacpp": qwen_llamacpp(),
    "host": plan_for("llamacpp", None, QWEN, None, LlamacppSettings(ctx_size=4096)),
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("has_sources", [False, True])
def test_it_fits_a_terminal_and_says_everything(name, has_sources) -> None:
    plan = PLANS[name]
    text = plan_text(plan, drafter="a drafter", has_sources=has_sources)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert not any(line != line.rstrip() for line in lines)
    assert "\x1b" not in text
    flat = " ".join(text.split())
    for entry in plan.ledger.entries:
        assert entry.name.split()[0] in flat
        assert (entry.source in flat) is has_sources or entry.source in entry.name
    for note in plan.notes:
        assert note in flat
    assert f"{plan.kv_pool_tokens:,} tokens" in text


@pytest.mark.parametrize("name", PLANS)
def test_the_verdict_comes_first(name) -> None:
    plan = PLANS[name]
    blocks = plan_text(plan).split("\n\n")
    assert blocks[1].splitlines()[0] == OUTCOMES[plan.verdict.outcome]
    assert blocks[2].startswith("KV pool")


def test_the_reference_deployment_reads_as_it_should() -> None:
    text = plan_text(calibrated(sglang()), drafter="kimi-k2.6-dflash")
    assert "RUNS OUT OF MEMORY IN A PREFILL" in text
    assert "77,184 bytes" in text
    assert "target alone 70,272, in truth 73,344" in text
    assert re.search(r"experts' down-projection +896 MiB  formula", text)
    stable = sglang(mem_fraction_static=0.93, chunked_prefill_size=4096, expandable_segments=True)
    held = plan_text(calibrated(stable))
    assert "\nSAFE\n" in held
    assert re.search(r"experts' down-projection +448 MiB  formula", held)


def test_groups_are_the_device() -> None:
    text = plan_text(calibrated(sglang()))
    groups = re.findall(r"^[x#=+.] .{42} +([\d.]+) (GiB|MiB)$", text, re.MULTILINE)
    total = sum(float(size) / (1 if unit == "GiB" else 1024) for size, unit in groups)
    assert total == pytest.approx(97_887 / 1024, abs=0.03)


def test_other_fractions_mark_the_own() -> None:
    plan = calibrated(sglang())
    text = plan_text(plan, others=plans_by_fraction(calibrated, plan, (0.85, 0.92, 0.93)))
    rows = dict(re.findall(r"^[> ] +(0\.\d+) +([\d,]+) .*$", text, re.MULTILINE))
    assert set(rows) == {"0.85", "0.92", "0.93", "0.94"}
    for fraction, tokens in (("0.85", 101_134), ("0.92", 192_406), ("0.93", 205_445), ("0.94", 218_484)):
        assert int(rows[fraction].replace(",", "")) == pytest.approx(tokens, rel=2e-3)
    assert re.search(r"^> +0.94 .*fails from", text, re.MULTILINE)


def test_others_are_seven_around_the_own_and_none_without_a_fraction() -> None:
    plan = calibrated(sglang())
    assert [fraction for fraction, _ in plans_by_fraction(calibrated, plan)] == [
        0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97,
    ]  # fmt: skip
    assert plans_by_fraction(qwen_llamacpp, qwen_llamacpp()) == ()
    in_bytes = VllmSettings(kv_cache_memory_bytes=10 * 2**30)
    assert plans_by_fraction(qwen_vllm, qwen_vllm(in_bytes)) == ()


@pytest.mark.parametrize(
    ("plan_of", "start"),
    [
        (calibrated, sglang()),
        (kimi, sglang(context_length=262_144, max_running_requests=64)),
        (qwen_vllm, VllmSettings()),
        (qwen_llamacpp, LlamacppSettings()),
    ],
)
@pytest.mark.parametrize("num_requests", [1, 500])
def test_options_fit_a_terminal(plan_of, start, num_requests) -> None:
    wish = {"target_context_len": 30_000, "num_requests": num_requests}
    options = settings_for(plan_of, start, **wish)
    text = options_text(
        options, freed_by_flag(plan_of, start, **wish), start=plan_of(start), margin_frac=0.02, **wish
    )
    assert max(map(len, text.splitlines())) <= 80
    assert f"{num_requests} x 30,000 tokens" in text
    assert ("nearest misses" in text) is not any(option.holds for option in options)
    for place in range(len(options)):
        assert f"\n{place + 1}. " in text


def test_a_change_says_what_was_before() -> None:
    start = sglang()
    wish = {"target_context_len": 200_000, "num_requests": 1}
    text = options_text(
        settings_for(calibrated, start, **wish), (), start=calibrated(start), margin_frac=0.02, **wish
    )
    assert re.search(r"--mem-fraction-static 0.93 +was 0.94", text)
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in text
    assert "with 2 % to spare" in text
    again = changed(start, {"mem_fraction_static": 0.93, "chunked_prefill_size": 4096, "expandable_segments": True})
    held = options_text(
        settings_for(calibrated, again, **wish), (), start=calibrated(again), margin_frac=0.02, **wish
    )
    assert "the flags as they are" in held


def test_checks_say_the_verdict_first() -> None:
    plan = calibrated(sglang())
    good = checks_text(checks(plan, {"kv_pool_tokens": 218_484}, {"mem_fraction_static": 0.94}))
    assert good.startswith("The server is as planned: 2 of 2 agree.")
    bad = checks_text(checks(plan, {"kv_pool_tokens": 101_134}, {"mem_fraction_static": 0.85}))
    assert bad.startswith("2 of 2 differ from the plan.")
    assert re.search(r"KV pool \(tokens\) +218,48\d +101,134 +-53.7 %  differs", bad)
    assert max(map(len, bad.splitlines())) <= 80


def test_nothing_to_check_is_no_agreement() -> None:
    assert "nothing" in checks_text(())


@pytest.mark.parametrize("plan", [kimi(sglang()), qwen_vllm(), qwen_llamacpp()])
def test_advice_fits_a_terminal(plan) -> None:
    for moment in ("start", "prefill"):
        text = died_text(moment, died_advice(moment, plan))
        assert max(map(len, text.splitlines())) <= 80
        assert text.splitlines()[0].startswith("It died")


def test_a_flag_never_stands_apart_from_its_value() -> None:
    text = plan_text(calibrated(sglang()))
    block = text.split("Flags\n-----\n")[1].split("left to the engine")[0]
    for line in block.splitlines():
        assert line.startswith("--")
        assert re.fullmatch(r"(--[a-z-]+ \S+(  )?)+", line)
    assert isinstance(calibrated(sglang()).settings, SglangSettings)
