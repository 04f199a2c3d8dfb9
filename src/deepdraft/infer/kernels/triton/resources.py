"""What the kernels need of a device, found by compiling them ahead of time: no GPU is asked.

For NVIDIA the registers, the bytes spilled and the shared memory are read from the finished program by `cuobjdump`,
which Triton's wheel brings along with ptxas; for AMD from the metadata of the assembly. Leaves out speed.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from deepdraft.infer.kernels.triton import attend, launch, move
from deepdraft.infer.kernels.triton.tile import Tile

_POINTERS = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16"}
_UNALIGNED = frozenset(
    {"num_splits", "min_split_len", "tail_words", "num_parts", "num_query_rows", "num_moves", "value_head_stride"}
)
"""Arguments that are not multiples of 16 (as addresses or as numbers): the rest are, and loads are wide for it."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Of one program (a block of threads)."""

    shared_bytes: int
    num_registers: int
    """32-bit registers of a thread (vector registers on AMD)"""
    spilled: int
    """Bytes of stack on NVIDIA, spilled vector registers on AMD"""
    num_wide_loads: int
    """Instructions that load 16 bytes for each thread from global memory, to registers or to shared memory"""


def attention_resources(arch: str, shape: launch.Shape, tile: Tile) -> Resources:
    """Of `attend_split`."""
    cache, query = _POINTERS[shape.dtype], _POINTERS[shape.query_dtype]
    types = {
        "queries": query, "keys": cache, "values": cache, "part_out": "*fp32", "part_lse": "*fp32",
        "qo_indptr": "*i32", "kv_indptr": "*i32", "kv_indices": "*i32", "kv_lens": "*i32", "tail_bits": "*i64",
        "scale_log2": "fp32",
    }  # fmt: skip
    constants = shape.constants(tile, is_wide=False)
    return _resources(arch, _compiled(attend.attend_split, arch, types, constants, tile.num_warps, tile.num_stages))


def merge_resources(arch: str, *, num_heads: int, value_dim: int, dtype: torch.dtype) -> Resources:
    """Of `merge_splits`."""
    types = {
        "part_out": "*fp32",
        "part_lse": "*fp32",
        "out": _POINTERS[dtype],
        "lse": "*fp32",
        "num_query_rows": "*i32",
    }
    constants = launch.merge_constants(num_heads, value_dim)
    return _resources(arch, _compiled(attend.merge_splits, arch, types, constants, launch.MERGE_WARPS, 2))


def move_resources(arch: str, num_moves: int) -> Resources:
    """Of `move_rows`."""
    return _resources(arch, _compiled_move(arch, num_moves))


def moves_wait(arch: str, num_moves: int) -> bool:
    """Whether in `move_rows` all loads have ended, and a barrier stands, before the first store."""
    asm = _compiled_move(arch, num_moves).asm
    assembly = asm["amdgcn" if _is_amd(arch) else "ptx"]
    load, store = (r"_load_", r"_store_") if _is_amd(arch) else (r"ld\.global", r"st\.global")
    first_store = re.search(store, assembly)
    loads = list(re.finditer(load, assembly))
    if first_store is None or not loads or loads[-1].end() > first_store.start():
        return False
    between = assembly[loads[-1].end() : first_store.start()]
    return bool(re.search(r"s_waitcnt vmcnt\(0\).*s_barrier" if _is_amd(arch) else r"bar\.sync", between, re.DOTALL))


def _compiled_move(arch: str, num_moves: int) -> Any:
    types = {
        "tensors": "*i64", "row_words": "*i32", "source_slots": "*i64", "target_slots": "*i64", "num_moves": "*i32",
    }  # fmt: skip
    constants = {"WORD": tl.int32, "IS_AMD": _is_amd(arch), **move.blocks(num_moves)}
    return _compiled(move.move_rows, arch, types, constants, move.NUM_WARPS, 1)


def _compiled(
    kernel: Any, arch: str, types: Mapping[str, str], constants: Mapping[str, object], num_warps: int, num_stages: int
) -> Any:
    """A kernel compiled for an architecture. Arguments without a type are int32."""
    names = kernel.arg_names
    signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in names}
    aligned = [
        place
        for place, name in enumerate(names)
        if name not in constants and name not in _UNALIGNED and signature[name] != "fp32"
    ]
    source = ASTSource(
        kernel,
        signature,
        constexprs=dict(constants),
        attrs={(place,): [["tt.divisibility", 16]] for place in aligned},
    )
    options = {"num_warps": num_warps, "num_stages": num_stages}
    return triton.compile(source, target=_target(arch), options=options)


def _is_amd(arch: str) -> bool:
    return arch.startswith("gfx")


def _target(arch: str) -> GPUTarget:
    if _is_amd(arch):
        return GPUTarget("hip", arch, 64 if arch.startswith("gfx9") else 32)
    return GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)


def _resources(arch: str, compiled: Any) -> Resources:
    if _is_amd(arch):
        assembly = compiled.asm["amdgcn"]
        numbers = [re.search(rf"\.{name}:\s+(\d+)", assembly) for name in ("vgpr_count", "vgpr_spill_count")]
        wide_load = r"(?:global|buffer)_load_dwordx4"
    else:
        assembly, said = compiled.asm["ptx"], _resource_usage(compiled.asm["cubin"])
        numbers = [re.search(rf"{name}:(\d+)", said) for name in ("REG", "STACK")]
        wide_load = r"cp\.async\.cg.*0x10|ld\.global\S*\.v4\.b32"
    num_registers, spilled = (int(number[1]) for number in numbers if number)
    return Resources(compiled.metadata.shared, num_registers, spilled, len(re.findall(wide_load, assembly)))


def _resource_usage(cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(cubin)
        tool = triton.knobs.nvidia.cuobjdump.path
        return subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
