"""Numbers as the report prints them: three significant digits, fixed notation, `-` for what is not known."""

from __future__ import annotations

NOTHING = "-"


def rate_text(value: float | None) -> str:
    """A rate or a number of milliseconds: 3104, 118.6, 19.9, 2.84, 0.700."""
    if value is None:
        return NOTHING
    size = abs(value)
    if size >= 999.95:
        return f"{value:.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    if size >= 0.9995:
        return f"{value:.2f}"
    return f"{value:.3g}" if size >= 0.001 or size == 0 else f"{value:.1e}"


def ms_text(seconds: float | None) -> str:
    """Seconds printed as milliseconds, without the unit."""
    return rate_text(None if seconds is None else seconds * 1e3)


def percent_text(part: float | None) -> str:
    """A share in per cent: 4 %, 0.5 %."""
    if part is None:
        return NOTHING
    percent = 100 * part
    return f"{percent:.0f} %" if percent >= 9.95 or percent == 0 else f"{percent:.1f} %"
