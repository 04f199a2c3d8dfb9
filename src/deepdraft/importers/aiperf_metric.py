"""Metrics of aiperf's exports, each an object with a value (or statistics) and a unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepdraft.importers.field import number, part, text

UNIT_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}
ITL = "(end of the request - TTFT) / (output tokens - 1), or less the first chunk's tokens with --per-chunk-usage"
ITL_DOUBT = "whether the first chunk's tokens were taken out of the divisor is not said"
BY_USAGE = "(last chunk - first chunk) / (output tokens by the server - 1)"


def seconds(metric: Mapping[str, Any], statistic: str) -> float | None:
    """A time in seconds; None for a unit that is none."""
    value, factor = number(metric, statistic), UNIT_S.get(text(metric, "unit") or "")
    return value * factor if value is not None and factor is not None else None


def prompt_len(metrics: Mapping[str, Any], statistic: str) -> float | None:
    """The server's count where the file has it, else the client's."""
    counted = number(part(metrics, "usage_prompt_tokens"), statistic)
    return counted or number(part(metrics, "input_sequence_length"), statistic)


def answer_len(metrics: Mapping[str, Any], statistic: str) -> float | None:
    """The server's count where the file has it, else the client's."""
    usage = number(part(metrics, "usage_completion_tokens"), statistic)
    return usage or number(part(metrics, "output_sequence_length"), statistic)
