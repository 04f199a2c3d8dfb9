"""A point that somebody else measured: a published table, or another tool's results. Only the figures are known, not
the requests behind them, so each keeps what its source said of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from deepdraft.records.schema_version import SCHEMA_VERSION
from deepdraft.records.server import Acceptance


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedFigure:
    """One figure of a reported point, under our name for it, in our unit."""

    values: tuple[float, ...]
    """One value a repeat or a request where the source gives them, else the one value it prints."""
    half_width: float | None = None
    """How far off each value may be by the source's rounding: 0.05 for a printed 0.7. None: not known."""
    statistic: str | None = None
    """What one value summarises where it stands for many: mean, median, p99 ... None: it is a sample."""
    num_samples: int | None = None
    """How many samples that statistic is made of, where the source says."""
    definition: str | None = None
    """The source's own definition, where it differs from ours or is not known to agree."""
    doubt: str | None = None
    """Why the figure may not be what its name says; None when nothing is known against it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """One reported point."""

    kind: Literal["reported"] = "reported"
    schema_version: int = SCHEMA_VERSION
    asked_context_len: int | None = None
    """The label of the point where the source has one; None when only the actual length is known."""
    context_len: int | None = None
    """Prompt tokens as counted; None when the source gives only what was asked."""
    concurrency: int = 1
    decode_len: int | None = None
    """Output tokens a request, where said."""
    figures: dict[str, ReportedFigure] = field(default_factory=dict)
    """By the names of the catalogue in metrics.figure."""
    acceptance: Acceptance | None = None
    is_cold: bool | None = None
    """Whether the prompts found nothing in a prefix cache, where the source says."""
    workload: str | None = None
    """What was sent, in the source's words; points of different workloads are not one curve."""
    remarks: tuple[str, ...] = ()
    """What the source says besides, one sentence each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where reported points come from."""

    tool: str
    """vllm bench serve, llama-bench, a published table ..."""
    version: str | None = None
    path: str | None = None
    """The file's name, without its folder."""
    sha256: str | None = None
    unknowns: tuple[str, ...] = ()
    """What this source can't tell, one sentence each."""
    traps: tuple[str, ...] = ()
    """Known ways in which this source's figures mislead, one sentence each."""
