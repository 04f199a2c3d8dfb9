"""The one object of `deepdraft show FILE --json`. Keys are the field names of the records and of the catalogue."""

from __future__ import annotations

from typing import Any

import msgspec

from deepdraft.metrics import FIGURE_KINDS, FIGURE_NAMES, Point, output_tokens, points_of
from deepdraft.records import Failure, Measurement, Run
from deepdraft.report.doubt import PointDoubts, point_doubts
from deepdraft.stats import Summary

RESULTS_SCHEMA_VERSION = 1


def results_object(run: Run) -> dict[str, Any]:
    """The whole run, ready for a JSON encoder: plain dicts, lists, strings, numbers and None."""
    points = points_of(run)
    spec, server = run.header.spec, run.header.capabilities
    return {
        "schema_version": RESULTS_SCHEMA_VERSION,
        "run_id": run.header.run_id,
        "created_at": run.header.created_at,
        "deepdraft_version": run.header.deepdraft_version,
        "command_line": list(run.header.command_line),
        "url": spec.url,
        "engine": server.engine,
        "engine_version": server.version,
        "model": server.model,
        "tokenizer": server.tokenizer,
        "max_context_len": server.max_context_len,
        "kv_pool_tokens": server.kv_pool_tokens,
        "speculation": server.speculation,
        "speculation_method": server.speculation_method,
        "method": spec.method,
        "text": spec.text,
        "arrival": spec.arrival,
        "num_repeats": spec.num_repeats,
        "device": spec.device,
        "environment": run.header.environment,
        "source": msgspec.to_builtins(run.header.source),
        "is_complete": run.is_complete,
        "outcome": run.ends[-1].outcome if run.ends else None,
        "points": [_point(point, point_doubts(run, point, points)) for point in points],
        "refusals": [
            {"context_len": one.context_len, "concurrency": one.concurrency, "reason": one.reason}
            for one in run.refusals
        ],
        "failures": _failures(run, points),
        "notes": [{"at_s": note.at_s, "topic": note.topic, "message": note.message} for note in run.notes],
        "server_doubts": list(server.doubts),
        "damage": list(run.damage),
        "definitions": {kind.name: {"unit": kind.unit, "definition": kind.definition} for kind in FIGURE_KINDS},
    }


def _point(point: Point, doubts: PointDoubts) -> dict[str, Any]:
    return {
        "context_len": point.context_len,
        "context_len_source": point.context_len_source,
        "asked_context_len": point.asked_context_len,
        "concurrency": point.concurrency,
        **{name: _summary(point.summary(name)) for name in FIGURE_NAMES},
        "pooled_tpot_s": point.pooled_tpot_s,
        "sources": {name: list(figure.sources) for name, figure in point.figures.items() if figure.sources},
        "half_widths": {
            name: figure.half_width for name, figure in point.figures.items() if figure.half_width is not None
        },
        "percentiles": {
            name: {f"p{100 * one.p:g}": {"value": one.value, "bound": one.bound} for one in percentiles}
            for name, percentiles in point.percentiles.items()
        },
        "guards": [
            {"name": guard.name, "state": guard.state, "evidence": guard.evidence, "doubts": list(guard.doubts)}
            for guard in doubts.guards
        ],
        "in_doubt": {
            name: {
                "violated": list(doubts.violated.get(name, ())),
                "not_verifiable": list(doubts.unverified.get(name, ())),
            }
            for name in sorted({*doubts.violated, *doubts.unverified})
        },
        "text": {"kinds": list(doubts.text.kinds), "nature": doubts.text.nature, "warning": doubts.text.warning},
        "num_requests": point.num_requests,
        "num_ok": point.num_ok,
        "num_failed": point.num_failed,
        "num_warmups": point.num_warmups,
        "num_superseded": point.num_superseded,
        "refused_pairs": [{"trial_id": pair.trial_id, "reason": pair.reason} for pair in point.refused_pairs],
        "needle": (
            {"num_found": point.num_needles_found, "num_asked": point.num_needles} if point.num_needles else None
        ),
        "peak_concurrency": point.peak_concurrency,
    }


def _summary(brief: Summary | None) -> dict[str, Any] | None:
    if brief is None:
        return None
    return {"median": brief.median, "low": brief.low, "high": brief.high, "num_samples": brief.num_samples}


def _failures(run: Run, points: tuple[Point, ...]) -> list[dict[str, Any]]:
    """Every failed request of the file, also those of warm-ups and of tries that were measured again."""
    counted = {id(failure) for point in points for failure in point.failures}
    concurrency = {trial.trial_id: trial.concurrency for trial in run.trials}
    concurrency |= {group.trial_id: group.concurrency for point in points for group in point.trials}
    return [
        _failure(measurement, measurement.failure, concurrency.get(measurement.trial_id), id(measurement) in counted)
        for measurement in run.measurements
        if measurement.failure is not None
    ]


def _failure(measurement: Measurement, failure: Failure, concurrency: int | None, is_counted: bool) -> dict[str, Any]:
    return {
        "trial_id": measurement.trial_id,
        "context_len": measurement.prompt.asked_len,
        "concurrency": concurrency,
        "request_index": measurement.request_index,
        "attempt": measurement.attempt,
        "is_warmup": measurement.is_warmup,
        "is_counted": is_counted,
        "started_at_s": measurement.started_at_s,
        "name": failure.name,
        "message": failure.message,
        "http_status": failure.http_status,
        "output_tokens": output_tokens(measurement.trace),
    }
