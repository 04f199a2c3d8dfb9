"""Accelerators by name: memory bandwidth, arithmetic peak, memory, and what kernels were seen to attain on them.

Peaks are the makers' dense figures without sparsity. What was attained comes from NVIDIA's per-operation measurements
(aiconfigurator-core 0.12, Apache-2.0): one layer of latent attention, bf16 KV. A device that is not listed is given
by its figures: `bandwidth=1.8TB/s,flops=500TFLOP/s,memory=96GB`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from deepdraft.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Attained:
    """What decode attention that splits the KV cache was seen to read, in bytes a second, at batch 1."""

    context_len: int
    bytes_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator. None: not known."""

    name: str
    bandwidth_bytes_s: float
    flops: float | None = None
    """Dense bf16 floating-point operations a second."""
    memory_bytes: float | None = None
    """All of it as the driver tells, which is not the round figure on the box."""
    num_multiprocessors: int | None = None
    """Streaming multiprocessors; compute units of AMD's."""
    has_fast_link: bool = False
    """Whether the devices of a server are joined by NVLink or Infinity Fabric, not by PCIe alone."""
    attained: tuple[Attained, ...] = ()
    """By growing context length."""
    unsplit_bytes_s: float | None = None
    """What a decode kernel that does not split the KV cache was seen to read, whatever the length or the batch."""
    prefill_attention_flops: float | None = None
    """What a Triton prefill attention kernel was seen to attain at 32k tokens."""
    all_reduce_s: float | None = None
    """One all-reduce of a single token's hidden state over eight of these, NCCL."""

    def attained_bytes_s(self, context_len: float) -> float | None:
        """What a splitting kernel attains at that length, between the measured lengths by straight lines; the
        nearest measured length outside them. None where nothing was measured."""
        if not self.attained:
            return None
        before = self.attained[0]
        for after in self.attained:
            if context_len <= after.context_len:
                span = after.context_len - before.context_len
                share = (context_len - before.context_len) / span if span else 0.0
                return before.bytes_s + max(share, 0.0) * (after.bytes_s - before.bytes_s)
            before = after
        return before.bytes_s


def _attained(bandwidth_bytes_s: float, *fracs: float) -> tuple[Attained, ...]:
    lens = (32_768, 65_536, 131_072)
    return tuple(
        Attained(context_len=length, bytes_s=frac * bandwidth_bytes_s)
        for length, frac in zip(lens, fracs, strict=True)
    )


_GB = 1e9
_MIB = 2**20
_TB = 1e12
DEVICES = (
    Device(
        name="RTX PRO 6000 Blackwell",
        bandwidth_bytes_s=1.792 * _TB,
        flops=503.8e12,
        memory_bytes=97_887 * _MIB,
        num_multiprocessors=188,
        attained=_attained(1.792 * _TB, 0.23, 0.39, 0.38),
        unsplit_bytes_s=13.5 * _GB,
        prefill_attention_flops=30e12,
        all_reduce_s=26.9e-6,
    ),
    Device(
        name="H100",
        bandwidth_bytes_s=3.35 * _TB,
        flops=989e12,
        memory_bytes=81_559 * _MIB,
        num_multiprocessors=132,
        has_fast_link=True,
        attained=_attained(3.35 * _TB, 0.32, 0.41, 0.52),
    ),
    Device(
        name="H200",
        bandwidth_bytes_s=4.8 * _TB,
        flops=989e12,
        memory_bytes=143_771 * _MIB,
        num_multiprocessors=132,
        has_fast_link=True,
        attained=_attained(4.8 * _TB, 0.27, 0.35, 0.49),
    ),
    Device(
        name="B200",
        bandwidth_bytes_s=8.0 * _TB,
        flops=2250e12,
        memory_bytes=183_359 * _MIB,
        num_multiprocessors=148,
        has_fast_link=True,
        attained=_attained(8.0 * _TB, 0.16, 0.27, 0.27),
    ),
    Device(
        name="A100 40GB",
        bandwidth_bytes_s=1.555 * _TB,
        flops=312e12,
        memory_bytes=40_960 * _MIB,
        num_multiprocessors=108,
        has_fast_link=True,
    ),
    Device(
        name="A100 80GB",
        bandwidth_bytes_s=2.039 * _TB,
        flops=312e12,
        memory_bytes=81_920 * _MIB,
        num_multiprocessors=108,
        has_fast_link=True,
    ),
    Device(name="L4", bandwidth_bytes_s=300 * _GB, flops=121e12, memory_bytes=23_034 * _MIB, num_multiprocessors=58),
    Device(
        name="L40S", bandwidth_bytes_s=864 * _GB, flops=362e12, memory_bytes=46_068 * _MIB, num_multiprocessors=142
    ),
    Device(
        name="RTX A6000",
        bandwidth_bytes_s=768 * _GB,
        flops=154.8e12,
        memory_bytes=49_140 * _MIB,
        num_multiprocessors=84,
    ),
    Device(
        name="RTX 3090", bandwidth_bytes_s=936 * _GB, flops=71e12, memory_bytes=24_576 * _MIB, num_multiprocessors=82
    ),
    Device(
        name="RTX 4090",
        bandwidth_bytes_s=1.008 * _TB,
        flops=165e12,
        memory_bytes=24_564 * _MIB,
        num_multiprocessors=128,
    ),
    Device(
        name="RTX 5090",
        bandwidth_bytes_s=1.792 * _TB,
        flops=209.5e12,
        memory_bytes=32_607 * _MIB,
        num_multiprocessors=170,
    ),
    Device(
        name="MI300X",
        bandwidth_bytes_s=5.3 * _TB,
        flops=1307e12,
        memory_bytes=196_592 * _MIB,
        num_multiprocessors=304,
        has_fast_link=True,
    ),
)

_FACTOR = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "mi": 2.0**20, "gi": 2.0**30}
_AMOUNT = re.compile(r"^(\d+(?:\.\d+)?(?:e\d+)?)\s*([mg]i|[kmgtp]?)(b|b/s|flops|flop/s)?$", re.IGNORECASE)
_HINT = "name one of: {names}; or give bandwidth=1.8TB/s,flops=500TFLOP/s,memory=96GB"


def device(text: str) -> Device:
    """The device of that name (case, spaces and hyphens don't matter; a part that fits one alone will do), or the one
    that the figures describe.

    Raises UsageError for a name that fits none or several, and for figures that can't be read.
    """
    if "=" in text:
        return _by_figures(text)
    wanted = _plain(text)
    exact = [each for each in DEVICES if _plain(each.name) == wanted]
    fitting = exact or [each for each in DEVICES if wanted and wanted in _plain(each.name)]
    if len(fitting) != 1:
        names = ", ".join(each.name for each in fitting or DEVICES)
        what = "fits several devices" if fitting else "is not a device I know"
        raise UsageError(f"{text!r} {what}", hint=_HINT.format(names=names))
    return fitting[0]


def known_device(text: str) -> Device | None:
    """The device that a free text names, as "8 x RTX PRO 6000 Blackwell" does; None where it names none or "
    "several."""
    named = [each for each in DEVICES if _as_word(each.name).search(text)]
    return named[0] if len(named) == 1 else None


def _as_word(name: str) -> re.Pattern[str]:
    """The name where it stands by itself: L4 is not in L40S."""
    parts = r"[\s_-]*".join(re.escape(part) for part in name.split())
    return re.compile(rf"(?<![a-z0-9]){parts}(?![a-z0-9])", re.IGNORECASE)


def _plain(text: str) -> str:
    return re.sub(r"[\s_-]", "", text.lower())


def _by_figures(text: str) -> Device:
    amounts: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        match = _AMOUNT.match(value.strip())
        if name.strip() not in ("bandwidth", "flops", "memory") or not match:
            raise UsageError(
                f"not a figure of a device: {part.strip()!r}",
                hint="for example bandwidth=1.8TB/s,flops=500TFLOP/s,memory=96GB",
            )
        amounts[name.strip()] = float(match[1]) * _FACTOR[match[2].lower()]
    bandwidth = amounts.get("bandwidth", 0.0)
    if bandwidth <= 0:
        raise UsageError("a device needs its memory bandwidth", hint="for example bandwidth=1.8TB/s")
    return Device(
        name="the device given",
        bandwidth_bytes_s=bandwidth,
        flops=amounts.get("flops") or None,
        memory_bytes=amounts.get("memory") or None,
    )
