"""The command of a plan: what the shell hands over is what was planned, whatever a path holds."""

from __future__ import annotations

import json
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planner.deployment import sglang

from deepdraft.planner.launch import Launch, command_text, launch
from deepdraft.planner.settings import LlamacppSettings, SglangSettings, VllmSettings

WORDS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=12)


def test_the_reference_deployments_stable_setting() -> None:
    stable = sglang(mem_fraction_static=0.93, chunked_prefill_size=4096, expandable_segments=True)
    text = command_text(launch(stable, "/models/Kimi-K2.6", drafter="/models/dflash", drafter_kind="dflash"))
    assert text == (
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python -m sglang.launch_server \\\n"
        "  --model-path /models/Kimi-K2.6 \\\n"
        "  --mem-fraction-static 0.93 \\\n"
        "  --tp-size 8 \\\n"
        "  --context-length 200000 \\\n"
        "  --chunked-prefill-size 4096 \\\n"
        "  --max-running-requests 8 \\\n"
        "  --attention-backend triton \\\n"
        "  --speculative-algorithm DFLASH \\\n"
        "  --speculative-num-draft-tokens 8 \\\n"
        "  --speculative-draft-model-path /models/dflash\n"
    )


def test_vllm_takes_its_drafter_as_json() -> None:
    settings = VllmSettings(gpu_memory_utilization=0.9, num_speculative_tokens=7, enforce_eager=True)
    command = launch(settings, "org/model", drafter="org/draft", drafter_kind="dflash")
    assert command.words[:3] == ("vllm", "serve", "org/model")
    assert "--enforce-eager" in command.words
    config = json.loads(command.words[command.words.index("--speculative-config") + 1])
    assert config == {"method": "dflash", "num_speculative_tokens": 7, "model": "org/draft"}
    assert json.loads(shlex.split(command_text(command))[-1]) == config


def test_layers_that_come_with_the_model_need_no_path() -> None:
    words = launch(SglangSettings(speculative_algorithm="EAGLE"), "m", drafter_kind="mtp").words
    assert "--speculative-draft-model-path" not in words


def test_a_drafter_that_does_not_draft_is_left_out() -> None:
    assert "d" not in launch(SglangSettings(), "m", drafter="d", drafter_kind="eagle").words


def test_llamacpp() -> None:
    settings = LlamacppSettings(
        ctx_size=10_000, parallel=4, kv_unified=False, cache_type_k="q8_0", flash_attn=True, num_devices=2
    )
    assert launch(settings, "m.gguf").words == (
        "llama-server", "--model", "m.gguf", "--ctx-size", "10000", "--parallel", "4", "--no-kv-unified",
        "--cache-type-k", "q8_0", "--flash-attn", "on", "--split-mode", "layer",
    )  # fmt: skip


@given(model=WORDS, drafter=WORDS)
def test_a_shell_hands_over_exactly_the_words(model, drafter) -> None:
    command = launch(sglang(expandable_segments=True), model, drafter=drafter, drafter_kind="dflash")
    name, *words = shlex.split(command_text(command).replace(" \\\n  ", " "))  # shlex knows no continued lines
    assert name == "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    assert tuple(words) == command.words


@pytest.mark.parametrize("model", ["/models/a b", "it's", '"$HOME" `id`', "a\nb", "ü$(id)\\", "*?[!]", "%s;true&"])
def test_a_real_shell_agrees(model) -> None:
    command = Launch(words=("printf", "%s\\n", model, "--flag", model), environment={"NAME": "a b"})
    done = subprocess.run(["sh", "-c", command_text(command)], capture_output=True, text=True, check=True)
    assert done.stdout == f"{model}\n--flag\n{model}\n"


@given(model=WORDS.filter(lambda word: not word.startswith("--")))
def test_groups_are_all_the_words(model) -> None:
    command = launch(sglang(), model)
    assert tuple(word for group in command.groups for word in group) == command.words
    assert all(group[0].startswith("--") for group in command.groups[1:])
