"""What the page's script is given: the charts as one JSON text that can stand inside a script element.

Values are those of the file, unrounded; beside each stands its printed text, so that the script formats nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from deepdraft.report.chart import Axis, Chart, Series
from deepdraft.report.markup import visible

_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def chart_json(charts: Sequence[Chart]) -> str:
    """ASCII JSON without `<`, `>` and `&`: no text in it can end the script element, whatever the parser."""
    return json.dumps([_chart(chart) for chart in charts], ensure_ascii=True, allow_nan=False).translate(_IN_SCRIPT)


def _chart(chart: Chart) -> dict[str, Any]:
    return {
        "name": chart.name,
        "x": _axis(chart.x),
        "y": _axis(chart.y),
        "isStack": chart.is_stack,
        "series": [_series(chart, one) for one in chart.series],
        "levels": [{"y": level.y, "label": visible(level.label)} for level in chart.levels],
        "crossings": [
            {"x": one.x, "low": one.low, "high": one.high, "label": visible(one.label)} for one in chart.crossings
        ],
    }


def _axis(axis: Axis) -> dict[str, Any]:
    return {"label": visible(axis.label), "kind": axis.kind, "isLog": axis.is_log, "factor": axis.factor}


def _series(chart: Chart, series: Series) -> dict[str, Any]:
    return {
        "name": visible(series.name),
        "role": series.role,
        "colour": series.colour_index,
        "xs": series.xs,
        "ys": _finite(series.ys),
        "lows": _finite(series.lows),
        "highs": _finite(series.highs),
        "marks": series.marks,
        "places": [chart.x.text(x) for x in series.xs],
        "texts": [_text(chart.y, series, place) for place in range(len(series.xs))],
    }


def _finite(values: Sequence[float | None] | None) -> list[float | None] | None:
    """JSON has no infinity."""
    if values is None:
        return None
    return [value if value is not None and math.isfinite(value) else None for value in values]


def _text(axis: Axis, series: Series, place: int) -> str:
    """The value, its mark, and its range where it has one."""
    mark = series.marks[place] if series.marks is not None else ""
    low = series.lows[place] if series.lows is not None else None
    high = series.highs[place] if series.highs is not None else None
    text = axis.text(series.ys[place]) + mark
    if low is None or high is None or axis.text(low) == axis.text(high):
        return text
    return f"{text} ({axis.text(low)} to {axis.text(high)})"
