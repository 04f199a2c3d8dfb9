"""Points that somebody else measured: what follows from their figures, and what does not."""

import pytest

from deepdraft.errors import ResultsError
from deepdraft.metrics import points_of
from deepdraft.records import Capabilities, Header, Reported, ReportedFigure, Run, SweepSpec


def _run(*lines: Reported) -> Run:
    header = Header(
        run_id="published",
        created_at="2026-01-01T00:00:00Z",
        deepdraft_version="0",
        command_line=(),
        spec=SweepSpec(url=""),
        capabilities=Capabilities(engine="sglang", detected_by="named by the user"),
    )
    return Run(header=header, reported=lines)


def _line(**figures: ReportedFigure) -> Reported:
    return Reported(asked_context_len=185_000, context_len=184_300, figures=figures)


def test_time_a_token_follows_from_the_printed_rate_with_its_rounding() -> None:
    (point,) = points_of(_run(_line(decode_tok_s=ReportedFigure(values=(0.7,), half_width=0.05))))
    tpot = point.figures["tpot_s"]
    assert tpot.summary.median == pytest.approx(1 / 0.7)
    assert tpot.half_width == pytest.approx(1 / 0.65 - 1 / 0.7)
    assert "1 / decode_tok_s" in tpot.sources[0]


def test_prefill_follows_from_the_actual_length_only() -> None:
    rate = ReportedFigure(values=(479.0,))
    (point,) = points_of(_run(_line(prefill_tok_s=rate)))
    assert point.summary("ttft_s").median == pytest.approx(184_300 / 479)  # type: ignore[union-attr]
    asked_only = Reported(asked_context_len=185_000, figures={"prefill_tok_s": rate})
    (point,) = points_of(_run(asked_only))
    assert point.summary("ttft_s") is None
    assert "does not tell the actual length" in point.context_len_source
    hit = Reported(context_len=184_300, is_cold=False, figures={"ttft_s": ReportedFigure(values=(2.0,))})
    (point,) = points_of(_run(hit))
    assert point.summary("prefill_tok_s") is None


def test_what_the_source_prints_is_never_replaced() -> None:
    line = _line(tpot_s=ReportedFigure(values=(1.5,)), decode_tok_s=ReportedFigure(values=(0.7,)))
    (point,) = points_of(_run(line))
    assert point.summary("tpot_s").median == 1.5  # type: ignore[union-attr]


def test_doubts_and_statistics_are_kept() -> None:
    said = ReportedFigure(values=(0.4, 0.5), statistic="mean of a run", doubt="counts events as tokens")
    (point,) = points_of(_run(_line(tpot_s=said)))
    assert point.figures["decode_tok_s"].doubts == ("counts events as tokens",)
    assert "mean of a run" in point.figures["tpot_s"].sources[0]
    assert point.figures["tpot_s"].summary.num_samples == 2


def test_points_of_one_length_stay_apart() -> None:
    lines = [_line(tpot_s=ReportedFigure(values=(value,))) for value in (0.1, 0.2)]
    assert [point.summary("tpot_s").median for point in points_of(_run(*lines))] == [0.1, 0.2]  # type: ignore[union-attr]


def test_a_point_without_a_length_or_a_value_is_refused() -> None:
    with pytest.raises(ResultsError, match="context length"):
        points_of(_run(Reported(figures={"tpot_s": ReportedFigure(values=(0.1,))})))
    with pytest.raises(ResultsError, match="no value"):
        points_of(_run(_line(tpot_s=ReportedFigure(values=()))))
