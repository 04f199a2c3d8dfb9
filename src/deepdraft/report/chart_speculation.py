"""What speculation gave: acceptance against context length, and by depth of the draft."""

from __future__ import annotations

from collections.abc import Sequence

from deepdraft.report.chart import Axis, Chart, Level, Series
from deepdraft.report.chart_context import points_series
from deepdraft.report.chart_words import CONTEXT, summary_of
from deepdraft.report.depth import depth_rates
from deepdraft.report.subject import Subject
from deepdraft.units import tokens_text


def acceptance_chart(subjects: Sequence[Subject]) -> Chart | None:
    """Acceptance length against context; tokens a step of a run that has no acceptance length."""
    series: list[Series] = []
    for index, subject in enumerate(subjects):
        for figure, label in (("acceptance_len", "acceptance length"), ("tokens_per_step", "tokens a step")):
            found = points_series(subjects, index, figure, label)
            if found:
                series += found if _is_telling(subject, found) else []
                break
    if not series:
        return None
    y = Axis(label="tokens a verify step, bonus included", kind="number")
    return Chart(
        name="acceptance",
        title="Acceptance",
        summary=summary_of("Tokens committed a verify step against context length", series, CONTEXT, y),
        x=CONTEXT,
        y=y,
        series=tuple(series),
        levels=(Level(y=1.0, label="1: no draft accepted"),),
    )


def _is_telling(subject: Subject, series: Sequence[Series]) -> bool:
    """Without a drafter one token a step is no news."""
    return subject.run.header.capabilities.speculation == "yes" or any(y != 1 for one in series for y in one.ys)


def depth_chart(subjects: Sequence[Subject]) -> Chart | None:
    """The share of verify steps that accepted the draft at each depth, a series a point."""
    series: list[Series] = []
    for subject in subjects:
        for row in subject.rows:
            known = depth_rates(row.point)
            if known is None:
                continue
            name = tokens_text(row.point.context_len) + (
                f" x {row.point.concurrency}" if row.point.concurrency != 1 else ""
            )
            series.append(
                Series(
                    name=f"{subject.name}, {name}" if len(subjects) > 1 else name,
                    role="points",
                    colour_index=len(series),
                    xs=tuple(float(depth + 1) for depth in range(len(known.rates))),
                    ys=known.rates,
                )
            )
    if not series:
        return None
    x, y = Axis(label="depth of the draft", kind="count"), Axis(label="verify steps that accepted it", kind="share")
    return Chart(
        name="depth",
        title="Acceptance by depth",
        summary=summary_of("Share of verify steps that accepted the draft at each depth", series, x, y),
        x=x,
        y=y,
        series=tuple(series),
    )
