"""The charts as one picture: PNG, SVG or PDF, by matplotlib (extra `report`).

Text of a results file is drawn as it stands: no mathematics is read into it. The same charts give the same SVG, byte
for byte.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from deepdraft.report.chart import Axis, Chart, Series
from deepdraft.report.markup import visible
from deepdraft.report.tick import log_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0b5cad", "#c2410c", "#1c7c54", "#8b3fa0", "#a16207", "#0e7490", "#be185d", "#525b66")
_MARKS = ("o", "s", "D", "^")
_INCHES = (7.2, 4.0)
_SETTINGS: Any = {
    "text.parse_math": False,
    "svg.hashsalt": "deepdraft",
    "svg.fonttype": "path",
    "font.size": 9.5,
    "axes.titlesize": 11,
}


def plot_bytes(charts: Sequence[Chart], form: Literal["png", "svg", "pdf"], title: str) -> bytes:
    """All charts, one below the other. Raises ValueError without any chart."""
    if not charts:
        raise ValueError("no chart to draw")
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(_INCHES[0], _INCHES[1] * len(charts) + 0.4), layout="constrained", facecolor="white")
        figure.suptitle(visible(title), fontsize=12)
        for place, chart in enumerate(charts, start=1):
            _draw(figure.add_subplot(len(charts), 1, place), chart)
        out = io.BytesIO()
        metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[form]
        figure.savefig(out, format=form, dpi=150, metadata=metadata)
    return out.getvalue()


def _draw(axes: Axes, chart: Chart) -> None:
    axes.set_title(visible(chart.title), loc="left", fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dfe3e7", linewidth=0.8)
    axes.set_axisbelow(True)
    if chart.is_stack:
        _draw_stack(axes, chart)
    else:
        for series in chart.series:
            _draw_series(axes, chart, series)
        _set_axes(axes, chart)
    for level in chart.levels:
        axes.axhline(level.y * chart.y.factor, color="#59626c", linestyle=":", linewidth=1)
    for crossing in chart.crossings:
        axes.axvline(crossing.x, color="#16191d", linewidth=1.2)
        if crossing.low is not None and crossing.high is not None:
            axes.axvspan(crossing.low, crossing.high, color="#16191d", alpha=0.1, linewidth=0)
    axes.set_xlabel(visible(chart.x.titled))
    axes.set_ylabel(visible(chart.y.titled))
    axes.legend(frameon=False, fontsize=8.5)


def _draw_series(axes: Axes, chart: Chart, series: Series) -> None:
    factor = chart.y.factor
    colour = COLOURS[series.colour_index % len(COLOURS)]
    ys = [y * factor for y in series.ys]
    if series.role != "points":
        axes.plot(series.xs, ys, color=colour, linestyle="--" if series.role == "law" else ":", label=_label(series))
        if series.lows is not None and series.highs is not None:
            lower, upper = (_scaled(ends, factor) for ends in (series.lows, series.highs))
            axes.fill_between(series.xs, lower, upper, color=colour, alpha=0.14, linewidth=0)
        return
    has_law = any(one.role == "law" and one.colour_index == series.colour_index for one in chart.series)
    marker = _MARKS[series.colour_index % len(_MARKS)]
    axes.plot(
        series.xs,
        ys,
        color=colour,
        linestyle="none" if has_law else "-",
        linewidth=1.4,
        label=_label(series),
        marker=marker,
        markersize=5,
    )
    for place, (x, y) in enumerate(zip(series.xs, ys, strict=True)):
        if series.marks is not None and series.marks[place]:
            axes.plot([x], [y], color=colour, marker=marker, markersize=5, markerfacecolor="white")
        low = series.lows[place] if series.lows is not None else None
        high = series.highs[place] if series.highs is not None else None
        if low is not None and high is not None:
            axes.plot([x, x], [low * factor, high * factor], color=colour, linewidth=1.2)


def _draw_stack(axes: Axes, chart: Chart) -> None:
    places = chart.places()
    below = [0.0] * len(places)
    for series in chart.series:
        known = dict(zip(series.xs, series.ys, strict=True))
        heights = [max(known.get(place, 0.0), 0.0) * chart.y.factor for place in places]
        colour = COLOURS[series.colour_index % len(COLOURS)]
        axes.bar(
            range(len(places)), heights, 0.6, bottom=below, color=colour, label=_label(series), edgecolor="white"
        )
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.set_xticks(range(len(places)), [chart.x.text(place) for place in places])


def _set_axes(axes: Axes, chart: Chart) -> None:
    if chart.x.is_log:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(log_ticks(*axes.get_xlim())))
        axes.xaxis.set_minor_locator(NullLocator())
    if chart.y.is_log and all(y > 0 for series in chart.series for y in series.ys):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(FixedLocator(log_ticks(*axes.get_ylim())))
        axes.yaxis.set_minor_locator(NullLocator())
    elif not chart.y.is_log:
        axes.set_ylim(bottom=0)
    if chart.x.kind == "count":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(chart.x, value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(chart.y, value)))


def _tick(axis: Axis, value: float) -> str:
    return axis.text(value) if axis.kind in ("length", "count") else f"{value:g}"


def _scaled(ends: Sequence[float | None], factor: float) -> list[float]:
    return [float("nan") if end is None else end * factor for end in ends]


def _label(series: Series) -> str:
    """A label that starts with an underscore would be left out of the legend."""
    name = visible(series.name)
    return f" {name}" if name.startswith("_") else name
