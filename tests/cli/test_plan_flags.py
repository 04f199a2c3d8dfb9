"""Flags as the engines spell them: what a plan launches, the command line reads back as the same settings."""

from __future__ import annotations

import argparse
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.cli.main import Parser
from deepdraft.cli.plan_flags import ENGINE_FLAGS, add_engine_flags, given_fields, settings_with
from deepdraft.errors import UsageError
from deepdraft.planner.flag import ENGINE_TITLES, SETTINGS, flag_name, flag_text, stated_fields
from deepdraft.planner.launch import launch
from deepdraft.planner.settings import LlamacppSettings, SglangSettings, VllmSettings


def parsed(*words: object) -> argparse.Namespace:
    parser = Parser(prog="plan")
    add_engine_flags(parser)
    return parser.parse_args([str(word) for word in words])


def settings_of(engine: str, *words: object):
    return settings_with(engine, given_fields(parsed(*words), engine))


COUNTS = st.none() | st.integers(1, 10**6)
FRACTIONS = st.none() | st.floats(0.01, 1.0).map(lambda value: round(value, 3))
SGLANG = st.builds(
    SglangSettings,
    mem_fraction_static=FRACTIONS,
    tp_size=st.integers(1, 64),
    context_length=COUNTS,
    chunked_prefill_size=COUNTS | st.just(-1),
    max_running_requests=COUNTS,
    page_size=st.integers(1, 128),
    kv_cache_dtype=st.sampled_from(["auto", "fp8_e4m3"]),
    disable_cuda_graph=st.booleans(),
    enable_dp_attention=st.booleans(),
    mamba_full_memory_ratio=st.floats(0.1, 2.0).map(lambda value: round(value, 3)),
)
VLLM = st.builds(
    VllmSettings,
    gpu_memory_utilization=FRACTIONS,
    kv_cache_memory_bytes=COUNTS,
    max_model_len=COUNTS,
    max_num_seqs=COUNTS,
    enforce_eager=st.booleans(),
    num_speculative_tokens=COUNTS,
)
LLAMACPP = st.builds(
    LlamacppSettings,
    ctx_size=COUNTS,
    parallel=COUNTS,
    kv_unified=st.none() | st.booleans(),
    cache_type_k=st.sampled_from(["f16", "q8_0"]),
    flash_attn=st.none() | st.booleans(),
    swa_full=st.booleans(),
    n_gpu_layers=st.none() | st.integers(0, 99),
)


@given(settings=SGLANG | VLLM | LLAMACPP)
def test_a_launch_is_read_back(settings) -> None:
    engine = next(name for name, kind in SETTINGS.items() if isinstance(settings, kind))
    words = launch(settings, "model", drafter_kind="eagle3").words
    flags = words[words.index("model") + 1 :]
    assert settings_of(engine, *flags) == settings


def test_every_field_has_a_flag() -> None:
    for engine, kind in SETTINGS.items():
        known = {
            name
            for group in ENGINE_FLAGS.values()
            for flag in group
            for owner, name in flag.fields.items()
            if owner == engine
        }
        assert known == {field.name for field in fields(kind)}, ENGINE_TITLES[engine]


@pytest.mark.parametrize(
    ("engine", "words", "field", "value"),
    [
        ("sglang", ("--tp-size", 8), "tp_size", 8),
        ("sglang", ("--tensor-parallel-size", 8), "tp_size", 8),
        ("vllm", ("-tp", 8), "tensor_parallel_size", 8),
        ("sglang", ("--context-length", "200k"), "context_length", 200_000),
        (
            "vllm",
            ("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}'),
            "num_speculative_tokens",
            3,
        ),
        ("vllm", ("--kv-cache-memory", 1024), "kv_cache_memory_bytes", 1024),
        ("llamacpp", ("-np", 4), "parallel", 4),
        ("llamacpp", ("-ctk", "q8_0"), "cache_type_k", "q8_0"),
        ("llamacpp", ("-no-kvu",), "kv_unified", False),
        ("llamacpp", ("-fa", "off"), "flash_attn", False),
        ("llamacpp", ("-fa", "auto"), "flash_attn", None),
        ("llamacpp", ("-cram", 0), "cache_ram_mib", 0),
    ],
)
def test_short_and_long_words(engine, words, field, value) -> None:
    assert getattr(settings_of(engine, *words), field) == value


@pytest.mark.parametrize("text", ["{", "[]", '{"method": "mtp"}', '{"num_speculative_tokens": 0}'])
def test_a_speculative_config_that_is_none(text) -> None:
    with pytest.raises(UsageError):
        parsed("--speculative-config", text)


def test_given_flags_lie_over_a_base() -> None:
    base = SglangSettings(tp_size=8, mem_fraction_static=0.94)
    assert settings_with("sglang", {"mem_fraction_static": 0.93}, base) == SglangSettings(
        tp_size=8, mem_fraction_static=0.93
    )


@pytest.mark.parametrize(
    ("engine", "field", "value", "text"),
    [
        ("sglang", "mem_fraction_static", 0.93, "--mem-fraction-static 0.93"),
        ("sglang", "chunked_prefill_size", 4096, "--chunked-prefill-size 4096"),
        ("sglang", "context_length", None, "no --context-length"),
        ("vllm", "enforce_eager", True, "--enforce-eager"),
        ("vllm", "enforce_eager", False, "no --enforce-eager"),
        ("llamacpp", "kv_unified", False, "--no-kv-unified"),
        ("llamacpp", "flash_attn", True, "--flash-attn on"),
        ("sglang", "expandable_segments", True, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        ("sglang", "expandable_segments", False, "no PYTORCH_CUDA_ALLOC_CONF"),
    ],
)
def test_flags_in_words(engine, field, value, text) -> None:
    assert flag_text(engine, field, value) == text


def test_stated_fields_leave_out_what_is_the_engines_own() -> None:
    assert stated_fields(SglangSettings(tp_size=1, context_length=5)) == {"context_length": 5}
    assert flag_name("llamacpp", "cache_ram_mib") == "--cache-ram"
