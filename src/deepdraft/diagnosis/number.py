"""Numbers as findings print them: two or three significant digits, no exponent."""

from __future__ import annotations


def plain(value: float, digits: int = 2) -> str:
    """`value` with so many significant digits, in fixed notation: 0.0087, 1.2, 15, 14000."""
    if value == 0:
        return "0"
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e" in text and abs(value) >= 1 else f"{float(text):.10f}".rstrip("0").rstrip(".")


def ms(seconds: float, digits: int = 3) -> str:
    """Seconds as milliseconds with the unit."""
    return f"{plain(seconds * 1e3, digits)} ms"


def times(factor: float) -> str:
    """A factor: 1.2x, 15x, 130x."""
    return f"{plain(factor, 2)}x"


def bytes_s(rate: float) -> str:
    """Bytes a second, decimal: 14 GB/s, 1.8 TB/s."""
    if rate >= 1e12:
        return f"{plain(rate / 1e12)} TB/s"
    return f"{plain(rate / 1e9)} GB/s"


def flops(rate: float) -> str:
    """Operations a second: 58 TFLOP/s."""
    return f"{plain(rate / 1e12)} TFLOP/s"


def percent(share: float, digits: int = 2) -> str:
    """A share: 97 %, 0.8 %."""
    return f"{plain(100 * share, digits)} %"


def gib(num_bytes: float) -> str:
    """Bytes: 0.9 GiB."""
    return f"{plain(num_bytes / 2**30, 2)} GiB"
