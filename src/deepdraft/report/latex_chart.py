"""A chart as a pgfplots picture."""

from __future__ import annotations

from deepdraft.report.chart import Axis, Chart, Series
from deepdraft.report.latex_escape import latex_escaped
from deepdraft.report.tick import log_ticks

_MARKS = ("*", "square*", "diamond*", "triangle*")
_DASHES = {"law": "dashed", "floor": "dotted"}
_MAX_SINGLE_TICKS = 20
"""Whole numbers each get a tick up to here; beyond, pgfplots chooses."""


def chart_picture(chart: Chart) -> str:
    """The tikzpicture. Marks of points in doubt are hollow."""
    if chart.is_stack:
        return _picture(_stack_options(chart), [_bar(chart, one) for one in chart.series])
    plots = [plot for one in chart.series for plot in _plots(chart, one)]
    plots += [_level(chart, level.y) for level in chart.levels]
    plots += [_crossing(crossing.x) for crossing in chart.crossings]
    return _picture(_options(chart), plots)


def _picture(options: list[str], plots: list[str]) -> str:
    body = "\n".join(plots)
    return (
        f"\\begin{{tikzpicture}}\n\\begin{{axis}}[{', '.join(options)}]\n{body}\n\\end{{axis}}\n\\end{{tikzpicture}}"
    )


def _options(chart: Chart) -> list[str]:
    options = [
        r"width=0.95\linewidth",
        "height=65mm",
        f"xlabel={{{latex_escaped(chart.x.titled)}}}",
        f"ylabel={{{latex_escaped(chart.y.titled)}}}",
        "grid=major",
        "grid style={gray!20}",
        "label style={font=\\footnotesize}",
        "tick label style={font=\\footnotesize}",
        "legend style={font=\\scriptsize, draw=none, fill=none, at={(0.5,-0.28)}, anchor=north, legend columns=2}",
        "legend cell align=left",
        "scaled ticks=false",
    ]
    if chart.x.kind == "count" and max(x for one in chart.series for x in one.xs) <= _MAX_SINGLE_TICKS:
        options.append("xtick distance=1")
    if chart.x.is_log:
        options += ["xmode=log", *_ticks("x", chart.x, [x for one in chart.series for x in one.xs])]
    if chart.y.is_log and _is_positive(chart):
        options += ["ymode=log", *_ticks("y", chart.y, [y for one in chart.series for y in one.ys])]
    return options


def _ticks(name: str, axis: Axis, values: list[float]) -> list[str]:
    """Named ticks of a logarithmic axis over these values."""
    ticks = log_ticks(min(values) * axis.factor / 1.3, max(values) * axis.factor * 1.3)
    labels = [axis.text(tick) if axis.kind == "length" else f"{tick:g}" for tick in ticks]
    places = ",".join(f"{tick:.10g}" for tick in ticks)
    return [f"{name}tick={{{places}}}", f"{name}ticklabels={{{','.join(labels)}}}", f"minor {name} tick num=0"]


def _is_positive(chart: Chart) -> bool:
    return all(y > 0 for one in chart.series for y in one.ys)


def _plots(chart: Chart, series: Series) -> list[str]:
    colour = f"series{series.colour_index % 8}"
    name = rf"\addlegendentry{{{latex_escaped(series.name)}}}"
    if series.role != "points":
        dash = _DASHES.get(series.role, "solid")
        return [
            rf"\addplot[{colour}, {dash}, thick, mark=none] coordinates {{{_coordinates(chart, series)}}};",
            name,
        ]
    has_law = any(one.role == "law" and one.colour_index == series.colour_index for one in chart.series)
    style = [colour, f"mark={_MARKS[series.colour_index % len(_MARKS)]}", "mark size=1.6pt"]
    if has_law:
        style.append("only marks")
    if series.marks is not None and any(series.marks):
        style.append("mark options={fill=white}")
    if series.lows is not None:
        style.append("error bars/.cd, y dir=both, y explicit")
    return [rf"\addplot+[{', '.join(style)}] coordinates {{{_coordinates(chart, series)}}};", name]


def _coordinates(chart: Chart, series: Series) -> str:
    factor = chart.y.factor
    written = []
    for place, (x, y) in enumerate(zip(series.xs, series.ys, strict=True)):
        text = f"({x:.10g},{y * factor:.10g})"
        if series.role == "points" and series.lows is not None and series.highs is not None:
            low, high = series.lows[place], series.highs[place]
            if low is not None and high is not None:
                text += f" += (0,{(high - y) * factor:.10g}) -= (0,{(y - low) * factor:.10g})"
        written.append(text)
    return " ".join(written)


def _level(chart: Chart, y: float) -> str:
    xs = [x for one in chart.series for x in one.xs]
    ends = " ".join(f"({x:.10g},{y * chart.y.factor:.10g})" for x in (min(xs), max(xs)))
    return rf"\addplot[gray, densely dotted, mark=none, forget plot] coordinates {{{ends}}};"


def _crossing(x: float) -> str:
    bottom, top = (rf"({{axis cs:{x:.10g},1}} |- {{rel axis cs:0,{end}}})" for end in (0, 1))
    return rf"\draw[black, thin] {bottom} -- {top};"


def _stack_options(chart: Chart) -> list[str]:
    places = chart.places()
    kept = [
        option for option in _options(chart) if not option.startswith(("xmode", "xtick", "ymode", "ytick", "minor"))
    ]
    names = ",".join(chart.x.text(place) for place in places)
    ticks = ",".join(str(index) for index in range(len(places)))
    return [*kept, "ybar stacked", "bar width=14pt", f"xtick={{{ticks}}}", f"xticklabels={{{names}}}", "ymin=0"]


def _bar(chart: Chart, series: Series) -> str:
    known = dict(zip(series.xs, series.ys, strict=True))
    coordinates = " ".join(
        f"({index},{max(known.get(place, 0.0), 0.0) * chart.y.factor:.10g})"
        for index, place in enumerate(chart.places())
    )
    colour = f"series{series.colour_index % 8}"
    name = rf"\addlegendentry{{{latex_escaped(series.name)}}}"
    return rf"\addplot[fill={colour}, draw=white] coordinates {{{coordinates}}}; {name}"
