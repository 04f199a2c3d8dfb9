"""Compile the Triton kernels for every architecture they are meant for, on a machine without a GPU, and say what they
need of it.

    python scripts/compile_kernels.py [--arch sm_90 ...] [--json]

Exits with 1 where a kernel spills registers, wants more shared memory than a program may use, reads the cache in
pieces of fewer than 16 bytes, or moves rows that it may have overwritten. Needs triton (its
wheel brings ptxas, cuobjdump and the AMD code generator). Compiled kernels stay in Triton's cache (TRITON_CACHE_DIR).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict

import torch

from deepdraft.infer.kernels.triton import resources
from deepdraft.infer.kernels.triton.launch import Shape
from deepdraft.infer.kernels.triton.tile import max_shared_bytes, tile

ARCHS = ("sm_80", "sm_90", "sm_100", "sm_120", "gfx942")
BF16, FP32 = torch.bfloat16, torch.float32
KIMI, EMBEDDED, GQA = (1, 8, 16, 576, 512, True), (1, 4, 16, 80, 64, True), (8, 4, 1, 128, 128, False)
SHAPES = {
    "latent 512+64, 8 rows, bf16": (Shape(*KIMI, BF16, BF16), 8),
    "latent 512+64, 128 rows, bf16": (Shape(*KIMI, BF16, BF16), 128),
    "latent 512+64, 8 rows, fp32": (Shape(*KIMI, FP32, FP32), 8),
    "latent 64+16, 4 rows, bf16": (Shape(*EMBEDDED, BF16, BF16), 4),
    "heads of 128, 4 rows, bf16": (Shape(*GQA, BF16, BF16), 4),
    "heads of 128, 32 rows, bf16": (Shape(*GQA, BF16, BF16), 32),
    "heads of 128, 256 rows, bf16": (Shape(*GQA, BF16, BF16), 256),
    "heads of 128, 4 rows, bf16 cache, fp32 queries": (Shape(*GQA, BF16, FP32), 4),
}
"""Name: what is attended to, and query rows of a request and key head."""
MOVES = {"move, 16 rows": 16, "move, 1024 rows": 1024}


def needs(arch: str) -> Iterator[tuple[str, resources.Resources]]:
    """Each kernel's name and what it needs."""
    for name, (shape, num_rows) in SHAPES.items():
        chosen = tile(arch, num_rows=num_rows, widest_dim=shape.widest_dim, dot_bytes=4 if shape.is_wide else 2)
        yield name, resources.attention_resources(arch, shape, chosen)
    yield "merge, 512 columns", resources.merge_resources(arch, num_heads=8, value_dim=512, dtype=BF16)
    for name, num_moves in MOVES.items():
        yield name, resources.move_resources(arch, num_moves)


def main() -> int:
    """Print a line for each kernel, or one JSON list. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Compile the Triton kernels ahead of time.")
    parser.add_argument("--arch", nargs="+", choices=ARCHS, default=ARCHS)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found: list[dict[str, object]] = []
    fits = True
    for arch in asked.arch:
        limit_bytes = max_shared_bytes(arch)
        started = time.monotonic()
        for name, needed in needs(arch):
            is_good = needed.spilled == 0 and needed.shared_bytes <= limit_bytes
            if name in SHAPES:
                is_good &= needed.num_wide_loads > 0
            if name in MOVES:
                is_good &= resources.moves_wait(arch, MOVES[name])
            fits &= is_good
            found.append(
                {"arch": arch, "kernel": name, "limit_bytes": limit_bytes, "fits": is_good, **asdict(needed)}
            )
            if not asked.json:
                verdict = "fits" if is_good else "DOES NOT FIT"
                print(
                    f"{arch:7} {name:47} {needed.shared_bytes:7} of {limit_bytes} B shared, "
                    f"{needed.num_registers:3} registers, {needed.spilled} spilled, "
                    f"{needed.num_wide_loads} wide loads: {verdict} ({time.monotonic() - started:.1f} s)",
                    flush=True,
                )
            started = time.monotonic()
    if asked.json:
        print(json.dumps(found))
    return 0 if fits else 1


if __name__ == "__main__":
    sys.exit(main())
