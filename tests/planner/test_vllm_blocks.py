"""Blocks and groups against what vLLM's own functions make of the same layers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.cost.kv_dtype import BFLOAT16
from deepdraft.cost.kv_family import Compressed, Family, Grouped, KvFormat, Latent, Recurrent
from deepdraft.errors import UsageError
from deepdraft.planner.vllm_blocks import BlockLayout, block_layout

FORM = KvFormat.of(BFLOAT16)
POOL_BYTES = 8 * 2**30
IN_FLIGHT = 16_384
LENS = (8_192, 131_072)


def grouped(num_layers: int, heads: int, width: int, window: int | None = None) -> Grouped:
    return Grouped(num_layers=num_layers, num_kv_heads=heads, key_dim=width, value_dim=width, window=window)


LATENT = Latent(num_layers=61, kv_lora_rank=512, qk_rope_head_dim=64)
GDN = Recurrent(num_layers=36, num_heads=32, state_elements=32 * 128 * 128, conv_elements=3 * 8192)
FAMILIES: dict[str, tuple[Family, ...]] = {
    "Qwen3-8B": (grouped(36, 8, 128),),
    "Gemma 3 27B": (grouped(10, 16, 128), grouped(52, 16, 128, 1024)),
    "gpt-oss-120b": (grouped(18, 8, 64), grouped(18, 8, 64, 128)),
    "gpt-oss-20b with EAGLE": (grouped(13, 8, 64), grouped(12, 8, 64, 128)),
    "Kimi K2.6 with DFlash, 1 of 8 ranks": (LATENT, grouped(6, 1, 128)),
    "latent beside narrower windows": (LATENT, grouped(6, 1, 128, 2048)),
    "latent beside wider windows": (LATENT, grouped(6, 8, 128, 2048)),
    "Llama 4": (grouped(12, 8, 128), grouped(36, 8, 128, 8192)),
    "Qwen3-Next": (grouped(12, 2, 256), GDN),
    "windows of half the heads": (grouped(10, 8, 128), grouped(30, 4, 128, 512)),
    "windows of odd heads": (grouped(10, 8, 128), grouped(30, 3, 128, 512)),
    "two widths, all full": (grouped(10, 8, 128), grouped(2, 3, 128)),
}
# Of vLLM 0.32.0 by vllm_own_groups.py: groups, bytes of a block, and at each of LENS tokens and a request's bytes.
OWN: dict[str, tuple[int, int, tuple[int, int], tuple[int, int]]] = {
    "Qwen3-8B": (1, 2_359_296, (58_240, 1_207_959_552), (58_240, 19_327_352_832)),
    "Gemma 3 27B": (7, 1_310_720, (14_953, 4_705_484_800), (58_326, 19_301_662_720)),
    "gpt-oss-120b": (2, 589_824, (116_390, 604_569_600), (206_916, 5_441_126_400)),
    "gpt-oss-20b with EAGLE": (2, 425_984, (161_154, 436_633_600), (286_497, 3_929_702_400)),
    "Kimi K2.6 with DFlash, 1 of 8 ranks": (1, 1_173_504, (117_104, 600_834_048), (117_104, 9_613_344_768)),
    "Llama 4": (4, 786_432, (43_688, 1_610_612_736), (111_841, 10_066_329_600)),
    "Qwen3-Next": (4, 25_952_256, (193_097, 363_331_584), (330_181, 3_399_745_536)),
    "windows of half the heads": (4, 655_360, (83_688, 840_826_880), (175_678, 6_408_765_440)),
    "windows of odd heads": (4, 655_360, (52_351, 1_344_143_360), (151_189, 7_446_855_680)),
    "two widths, all full": (1, 704_512, (195_072, 360_710_144), (195_072, 5_771_362_304)),
}


def layout_of(case: str) -> BlockLayout:
    return block_layout(FAMILIES[case], FORM, in_flight_len=IN_FLIGHT, has_chunks=case == "Llama 4")


def figures(layout: BlockLayout, max_len: int) -> tuple[int, int, int, int]:
    tokens = int(layout.num_requests(POOL_BYTES, max_len) * max_len)
    return len(layout.groups), layout.block_bytes, tokens, layout.request_bytes(max_len)


@pytest.mark.parametrize("case", OWN)
def test_as_vllm_itself(case: str) -> None:
    groups, block_bytes, *by_len = OWN[case]
    layout = layout_of(case)
    for max_len, (tokens, request_bytes) in zip(LENS, by_len, strict=True):
        assert figures(layout, max_len) == (groups, block_bytes, tokens, request_bytes)


@pytest.mark.engine
def test_as_the_vllm_that_is_installed() -> None:
    python = Path(os.environ.get("DEEPDRAFT_ENGINES", "nowhere")) / "vllm" / "bin" / "python"
    if not python.exists():
        pytest.skip("DEEPDRAFT_ENGINES names no folder with a vLLM that tests/engines/setup_vllm.sh set up")
    cases = [{"block_len": layout_of(case).block_len, "layers": _layers(case)} for case in FAMILIES]
    script = Path(__file__).with_name("vllm_own_groups.py")
    words = [str(python), str(script), json.dumps(cases), str(POOL_BYTES), str(IN_FLIGHT), *map(str, LENS)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for case, theirs in zip(FAMILIES, json.loads(done.stdout.splitlines()[-1]), strict=True):
        assert [list(figures(layout_of(case), length)) for length in LENS] == theirs, case


def _layers(case: str) -> list[list[Any]]:
    layers: list[list[Any]] = []
    for each in FAMILIES[case]:
        if isinstance(each, Latent):
            layers.append(["latent", each.num_layers, 1, each.kv_lora_rank + each.qk_rope_head_dim])
        elif isinstance(each, Recurrent):
            page_bytes = layout_of(case).block_len * 2 * 2 * 256 * 2
            layers.append(["state", each.num_layers, each.num_heads, 128, each.conv_elements, page_bytes])
        elif isinstance(each, Grouped):
            kind = "full" if each.window is None else "chunk" if case == "Llama 4" else "window"
            rest = [] if each.window is None else [each.window]
            layers.append([kind, each.num_layers, each.num_kv_heads, each.key_dim, *rest])
    return layers


@pytest.mark.parametrize(
    ("family", "dcp_size", "own"),
    [
        (LATENT, 2, (1, 1_124_352, 244_372, 3_514_724_352)),
        (LATENT, 8, (1, 1_124_352, 976_863, 879_243_264)),
        (grouped(36, 1, 128), 8, (1, 294_912, 3_724_717, 230_621_184)),
    ],
)
def test_ranks_that_share_tokens_as_vllm_itself(family: Family, dcp_size: int, own: tuple[int, ...]) -> None:
    """Of vLLM 0.32.0 with decode_context_parallel_size, at 100,001 tokens."""
    layout = block_layout((family,), FORM, in_flight_len=IN_FLIGHT, dcp_size=dcp_size)
    assert figures(layout, 100_001) == own


def test_a_request_is_a_fixed_part_and_a_slope() -> None:
    """What stands beside "GPU KV cache size": two numbers that don't depend on max_model_len."""
    layout = layout_of("gpt-oss-120b")
    fixed = layout.fixed_bytes(LENS[1])
    for length in (65_536, 98_304, 131_072):
        assert layout.request_bytes(length) == fixed + length * layout.bytes_per_token
    assert layout.bytes_per_token == 18 * 8 * 2 * 64 * 2


def test_windows_wider_than_latent_rows_are_kept_whole() -> None:
    """Latent pages can't be padded to the windows' greater ones; narrower windows are padded to theirs."""
    whole = layout_of("latent beside wider windows")
    assert not whole.is_hybrid
    assert whole.block_bytes == 16 * (61 * 576 * 2 + 6 * 8 * 256 * 2)
    padded = layout_of("latent beside narrower windows")
    assert padded.is_hybrid
    assert {group.layers.page_bytes for group in padded.groups} == {16 * 576 * 2}


def test_a_latent_row_beside_states_needs_blocks_of_128() -> None:
    layout = block_layout((LATENT, GDN), FORM, in_flight_len=IN_FLIGHT)
    assert layout.block_len % 128 == 0
    assert layout.block_len * 1152 >= GDN.state_bytes(FORM) // 36


def test_speculation_keeps_a_state_for_every_draft_token() -> None:
    plain = block_layout((grouped(12, 2, 256), GDN), FORM, in_flight_len=IN_FLIGHT)
    drafting = block_layout((grouped(12, 2, 256), GDN), FORM, in_flight_len=IN_FLIGHT, num_draft=3)
    assert drafting.fixed_bytes(8192) - plain.fixed_bytes(8192) == 3 * 3 * plain.block_bytes


def test_rows_of_several_tokens_are_refused() -> None:
    with pytest.raises(UsageError, match="several tokens"):
        block_layout((Compressed(num_layers=2, dim=512, qk_rope_head_dim=64, stride=4),), FORM, in_flight_len=1)


@given(st.integers(1, 300_000), st.sampled_from(sorted(OWN)))
def test_the_longest_request_fits_and_one_block_more_does_not(max_len: int, case: str) -> None:
    layout = layout_of(case)
    longest = layout.longest(POOL_BYTES, max_len)
    assert 0 <= longest <= max_len
    if longest:
        assert layout.request_bytes(longest) <= POOL_BYTES
    if longest < max_len:
        assert layout.request_bytes(longest + 1) > POOL_BYTES


@given(st.integers(1, 8), st.sampled_from(sorted(OWN)))
def test_latent_rows_are_on_every_rank_and_heads_are_shared(tp_size: int, case: str) -> None:
    alone = block_layout(FAMILIES[case], FORM, in_flight_len=IN_FLIGHT)
    shared = block_layout(FAMILIES[case], FORM, tp_size=tp_size, in_flight_len=IN_FLIGHT)
    assert shared.bytes_per_token <= alone.bytes_per_token
    latent = sum(each.row_bytes(FORM, 1) for each in FAMILIES[case] if isinstance(each, Latent))
    assert shared.bytes_per_token >= latent


@given(st.integers(1, 16))
def test_pipeline_stages_share_layers(pp_size: int) -> None:
    layout = block_layout((grouped(36, 8, 128),), FORM, pp_size=pp_size, in_flight_len=IN_FLIGHT)
    assert layout.block_bytes == -(-36 // pp_size) * 16 * 8 * 2 * 128 * 2
