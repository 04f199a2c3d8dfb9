"""The fraction that SGLang chooses where none is given, and the two figures by the card that it follows from.

Sources: server_args.py of 0.5.12.post1 (`_handle_gpu_memory_settings`, `adjust_mem_fraction_for_vlm`), and
arg_groups/memory_hook.py of 0.5.23.
"""

from __future__ import annotations

from typing import Literal

from deepdraft.cost.device import Device
from deepdraft.planner.settings import SglangSettings
from deepdraft.planner.shape import Shape
from deepdraft.planner.v4_layers import v4_layers

MIB = 2**20
Version = Literal["0.5.12", "0.5.23"]
_LARGE_CARD_MIB = 60 * 1024
_LARGE_CARD_RESERVE_MIB = 10 * 1024
_DRAFTER_RESERVE_MIB = 4 * 1024
_STANDALONE_RESERVE_MIB = 6 * 1024
_IMAGE_RESERVE_MIB = 8 * 1024
_DEEPEP_RESERVE_MIB, _DEEPEP_PREFILL_RESERVE_MIB = 2 * 1024, 1024


def default_chunk(version: Version, device: Device) -> int:
    """Tokens of a prefill chunk, by the card's memory."""
    mib = device_mib(device)
    if mib < 35 * 1024:
        return 2048 if mib < 20 * 1024 or version == "0.5.12" else 4096
    return 4096 if mib < 60 * 1024 else 8192 if mib < 160 * 1024 else 16384


def default_graph_max_bs(version: Version, device: Device, settings: SglangSettings) -> int:
    """Requests of the largest captured step, by the card's memory and the number of ranks."""
    small = (24, 80) if version == "0.5.12" else (48, 160)
    by_limit_gib = ((20, (8, 8)), (35, small), (60, (32, 160)), (160, (256, 512)))
    sizes = next((sizes for limit, sizes in by_limit_gib if device_mib(device) < limit * 1024), (512, 512))
    return sizes[1] if settings.tp_size >= 4 else sizes[0]


def auto_fraction(
    version: Version,
    shape: Shape,
    device: Device,
    settings: SglangSettings,
    *,
    chunk_len: int,
    graph_max_bs: int,
    is_post_capture: bool,
) -> float:
    """What is left of the card beside a reserve, to three digits, and less of it for models that read images."""
    mib = device_mib(device)
    if is_post_capture:
        reserved_mib = 1536 + 1024 * settings.tp_size * settings.pp_size / 8
    else:
        reserved_mib = activation_reserve_mib(settings, chunk_len)
        reserved_mib += _graph_reserve_mib(version, shape, settings, chunk_len, graph_max_bs)
        if mib > _LARGE_CARD_MIB:
            reserved_mib = max(reserved_mib, _LARGE_CARD_RESERVE_MIB)
        reserved_mib += deepep_reserve_mib(version, settings)
        if settings.speculative_algorithm and version == "0.5.12":
            is_standalone = settings.speculative_algorithm.upper() == "STANDALONE"
            reserved_mib += _STANDALONE_RESERVE_MIB if is_standalone else _DRAFTER_RESERVE_MIB
    fraction = round((mib - reserved_mib) / mib, 3)
    if not shape.is_multimodal:
        return fraction
    if is_post_capture:
        return fraction - _IMAGE_RESERVE_MIB / mib
    return fraction * 0.95 * min(max(1 - 0.1 * (shape.vision_complexity - 1), 0.8), 1.05)


def activation_reserve_mib(settings: SglangSettings, chunk_len: int) -> float:
    """The part of the reserve that goes with the chunk and the ranks."""
    return 512 + 1.5 * max(chunk_len, 2048) + 1024 * settings.tp_size * settings.pp_size / 8


def deepep_reserve_mib(version: Version, settings: SglangSettings) -> float:
    """What 0.5.23 leaves for DeepEP's buffers in the decode graphs (reserve_for_deepep_a2a_mb)."""
    has_buffers = settings.moe_a2a_backend == "deepep" and not settings.disable_cuda_graph
    return _DEEPEP_RESERVE_MIB if has_buffers and version == "0.5.23" else 0


def eager_reserve_mib(device: Device, settings: SglangSettings, chunk_len: int) -> float:
    """What stays free at least where steps may run without a graph (pre_capture_activation_reserve_mb)."""
    reserved_mib = activation_reserve_mib(settings, chunk_len)
    return max(reserved_mib, _LARGE_CARD_RESERVE_MIB) if device_mib(device) > _LARGE_CARD_MIB else reserved_mib


def device_mib(device: Device) -> float:
    """The card's memory in MiB, as the driver tells it."""
    return (device.memory_bytes or 0) / MIB


def _graph_reserve_mib(
    version: Version, shape: Shape, settings: SglangSettings, chunk_len: int, graph_max_bs: int
) -> float:
    if settings.disable_cuda_graph and version == "0.5.23":
        return 0
    has_prefill_graphs = version == "0.5.12" or v4_layers(shape.families) is None  # too heavy for DeepSeek-V4
    reserved_mib = 2.0 * graph_max_bs
    if settings.enable_dp_attention:
        reserved_mib += graph_max_bs * settings.dp_size * (4.5 if graph_max_bs > 300 else 3)
    if not has_prefill_graphs:
        return reserved_mib
    if deepep_reserve_mib(version, settings):
        reserved_mib += _DEEPEP_PREFILL_RESERVE_MIB
    return reserved_mib + (1536 if shape.is_latent else 8 * _num_prefill_graphs(chunk_len))


def _num_prefill_graphs(chunk_len: int) -> int:
    """Token counts of the piecewise graphs of a prefill."""
    sizes = (
        *range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64), *range(1280, 4097, 256),
        *range(4608, chunk_len + 1, 512),
    )  # fmt: skip
    return sum(1 for size in sizes if size <= chunk_len)
