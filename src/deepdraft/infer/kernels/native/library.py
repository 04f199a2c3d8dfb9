"""The built library through ctypes: its calls' structures (`attention.h`, `experts.h`), threads, where it is."""

from __future__ import annotations

import ctypes
import weakref
from functools import cache
from pathlib import Path

from deepdraft.infer.kernels.native.build import LIBRARY, fingerprint

OPENMP_LIBRARIES = ("libgomp", "libomp", "libiomp")


class NotBuilt(Exception):
    """The library can't be used; the text says why, in one line."""


class Attention(ctypes.Structure):
    """`DeepdraftAttention` of attention.h, which says what the fields are."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("queries", "keys", "values", "out", "lse")),
        *((name, ctypes.c_void_p) for name in ("qo_indptr", "kv_indptr", "kv_indices", "kv_lens")),
        *((name, ctypes.c_void_p) for name in ("prefix_lens", "tail_masks")),
        *((name, ctypes.c_int64) for name in ("key_slot_bytes", "key_head_bytes")),
        *((name, ctypes.c_int64) for name in ("value_slot_bytes", "value_head_bytes")),
        *((name, ctypes.c_int32) for name in ("num_requests", "num_heads", "num_kv_heads")),
        *((name, ctypes.c_int32) for name in ("key_dim", "value_dim", "page_size", "dtype")),
        ("scale", ctypes.c_float),
    )


class Experts(ctypes.Structure):
    """`DeepdraftExperts` of experts.h, which says what the fields are."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("router", "selection_bias", "gate_up", "down")),
        *((name, ctypes.c_void_p) for name in ("shared_gate_up", "shared_down")),
        *((name, ctypes.c_int32) for name in ("hidden_dim", "inner_dim", "shared_dim", "num_experts")),
        *((name, ctypes.c_int32) for name in ("num_experts_per_tok", "num_groups", "num_groups_per_tok")),
        *((name, ctypes.c_int32) for name in ("is_normalised", "dtype")),
        ("weight_scale", ctypes.c_float),
    )


class Threads:
    """Threads that calls may use, the caller's own included; freed with this object.

    They are those of the OpenMP runtime that torch computes with, so that both never run at once and none is woken
    twice; where there is none, own ones that sleep between calls.
    """

    def __init__(self, library: ctypes.CDLL, num_threads: int) -> None:
        self.num_threads = num_threads
        self.handle: int | None = library.deepdraft_threads_new(num_threads, _gomp_parallel())
        if self.handle is None:
            raise MemoryError("no memory for threads")
        weakref.finalize(self, library.deepdraft_threads_delete, self.handle)


@cache
def load(path: Path = LIBRARY) -> ctypes.CDLL:
    """The library, with its functions' types. Raises NotBuilt."""
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        reason = "it was not built with the package" if not path.exists() else f"it can't be loaded: {error}"
        raise NotBuilt(reason) from None
    if not hasattr(library, "deepdraft_fingerprint"):
        raise NotBuilt("its file is another library")
    library.deepdraft_fingerprint.restype = ctypes.c_char_p
    if library.deepdraft_fingerprint().decode() != fingerprint():
        raise NotBuilt("it was built from other sources than there are now")
    library.deepdraft_threads_new.restype = ctypes.c_void_p
    library.deepdraft_threads_new.argtypes = (ctypes.c_int32, ctypes.c_void_p)
    library.deepdraft_threads_delete.restype = None
    library.deepdraft_threads_delete.argtypes = (ctypes.c_void_p,)
    library.deepdraft_instruction_sets.restype = ctypes.c_char_p
    library.deepdraft_attend.restype = ctypes.c_int32
    library.deepdraft_attend.argtypes = (ctypes.POINTER(Attention), ctypes.c_void_p, ctypes.c_int32)
    addresses = (ctypes.c_void_p,) * 3
    library.deepdraft_feed_forward.restype = ctypes.c_int32
    library.deepdraft_feed_forward.argtypes = (*addresses, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)
    library.deepdraft_linear.restype = ctypes.c_int32
    library.deepdraft_linear.argtypes = (
        *addresses,
        *((ctypes.c_int32,) * 4),
        ctypes.c_void_p,
        ctypes.c_int32,
    )
    return library


@cache
def shared_threads(num_threads: int) -> Threads:
    """Those that all layers' feed-forwards use, one set for each number. Raises NotBuilt."""
    return Threads(load(), num_threads)


def instruction_sets(library: ctypes.CDLL) -> tuple[str, ...]:
    """Those that the library and this processor have, best first."""
    names: bytes = library.deepdraft_instruction_sets()
    return tuple(names.decode().split(","))


def _gomp_parallel() -> int | None:
    """The address of GOMP_parallel in the OpenMP runtime that this process has loaded; None where there is none."""
    try:
        mapped = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    paths = dict.fromkeys(line.split(maxsplit=5)[5] for line in mapped if len(line.split(maxsplit=5)) == 6)
    for path in paths:
        if not Path(path).name.startswith(OPENMP_LIBRARIES):
            continue
        try:
            return ctypes.cast(ctypes.CDLL(path).GOMP_parallel, ctypes.c_void_p).value
        except (OSError, AttributeError):
            continue
    return None
