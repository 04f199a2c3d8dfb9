"""Bytes of a row of numbers in the storage types that engines offer for their KV cache.

Block formats keep a scale beside every block, so a row costs more than its bits: 34 bytes for 32 values in q8_0.
Which engine offers which type is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.errors import UsageError


@dataclass(frozen=True, slots=True)
class KvDtype:
    """A storage type: blocks of `block_len` numbers in `block_bytes` bytes, scales included."""

    name: str
    block_len: int
    block_bytes: int

    def row_bytes(self, num_elements: int) -> int:
        """Bytes of a row of that many numbers; a part of a block takes a whole one."""
        return -(-num_elements // self.block_len) * self.block_bytes


FLOAT32 = KvDtype("float32", 1, 4)
FLOAT16 = KvDtype("float16", 1, 2)
BFLOAT16 = KvDtype("bfloat16", 1, 2)
FP8 = KvDtype("fp8", 1, 1)
_DTYPES = (
    FLOAT32,
    FLOAT16,
    BFLOAT16,
    FP8,
    KvDtype("int8", 1, 1),
    # Half a byte each and a scale of one byte for 16 (NVFP4, SGLang's fp4_e2m1), or for 32 (MX formats).
    KvDtype("fp4", 16, 9),
    KvDtype("mxfp4", 32, 17),
    KvDtype("mxfp8", 32, 33),
    # ggml's blocks of 32: a scale of two bytes, and a minimum of two more in the _1 kinds.
    KvDtype("q8_0", 32, 34),
    KvDtype("q5_1", 32, 24),
    KvDtype("q5_0", 32, 22),
    KvDtype("q4_1", 32, 20),
    KvDtype("q4_0", 32, 18),
    KvDtype("iq4_nl", 32, 18),
)
_ALIASES = {
    "f32": "float32",
    "fp32": "float32",
    "f16": "float16",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "fp8_inc": "fp8",
    "fp8_ds_mla": "fp8",
    "float8_e4m3fn": "fp8",
    "fp4_e2m1": "fp4",
    "nvfp4": "fp4",
}


def kv_dtype(name: str) -> KvDtype:
    """The storage type of that name, as SGLang, vLLM and llama.cpp spell them. Raises UsageError for others."""
    plain = name.strip().lower().removeprefix("torch.")
    plain = _ALIASES.get(plain, plain)
    for each in _DTYPES:
        if each.name == plain:
            return each
    names = ", ".join(sorted({each.name for each in _DTYPES} | set(_ALIASES)))
    raise UsageError(f"{name!r} is not a KV storage type I know", hint=f"one of: {names}")
