"""Builders for traces and runs, shared by the tests of stats, metrics, guards and report."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deepdraft.records import (
    Acceptance,
    Capabilities,
    EventLog,
    Failure,
    Header,
    Measurement,
    PromptFacts,
    RequestTrace,
    Run,
    ServerReading,
    SweepSpec,
    Trial,
    Usage,
)

SAMPLES = Path(__file__).parents[1] / "samples"


def trace(
    events: Sequence[tuple[float, str] | tuple[float, str, int]],
    *,
    usage: int | None = None,
    prompt: int | None = None,
    cached: int | None = None,
    stated: Sequence[int] | None = None,
    tokenizer: Sequence[int] | None = None,
    finish: str | None = "length",
    end_s: float | None = None,
    **fields: Any,
) -> RequestTrace:
    """A trace from (seconds, kind[, characters]) triples; `usage` is the server's completion tokens."""
    gaps, before = [], 0
    for at_s, *_ in events:
        at_us = round(at_s * 1e6)
        gaps.append(at_us - before)
        before = at_us
    chars = [event[2] if len(event) > 2 else 4 for event in events if event[1] in "trc"]
    has_usage = usage is not None or prompt is not None or cached is not None
    return RequestTrace(
        first_byte_s=events[0][0] if events else None,
        end_s=end_s if end_s is not None else (events[-1][0] if events else 0.0),
        http_status=200,
        events=EventLog(
            gaps_us=tuple(gaps),
            kinds="".join(event[1] for event in events),
            num_chars=tuple(chars),
            num_tokens=tuple(stated) if stated is not None else None,
            num_tokens_source="continuous usage" if stated is not None else None,
            tokenizer_tokens=tuple(tokenizer) if tokenizer is not None else None,
            tokenizer_source="gpt2" if tokenizer is not None else None,
        ),
        finish_reason=finish,
        saw_done=True,
        usage=Usage(prompt_tokens=prompt, completion_tokens=usage, cached_tokens=cached) if has_usage else None,
        **fields,
    )


def steady(
    num_events: int,
    *,
    ttft_s: float = 0.5,
    gap_s: float = 0.02,
    per_event: int = 1,
    prompt: int | None = 1000,
    cached: int | None = 0,
    **fields: Any,
) -> RequestTrace:
    """A well-behaved stream: role chunk, then text events at a steady pace, then usage and [DONE]."""
    last_s = ttft_s + gap_s * (num_events - 1)
    events: list[tuple[float, str]] = [(ttft_s / 2, "o")]
    events += [(ttft_s + gap_s * place, "t") for place in range(num_events)]
    events += [(last_s + 0.0005, "f"), (last_s + 0.0006, "u"), (last_s + 0.0007, "d")]
    fields.setdefault("usage", num_events * per_event)
    return trace(events, prompt=prompt, cached=cached, **fields)


def recorded(name: str) -> RequestTrace:
    """A trace from a recorded stream with `# t=` lines: enough parsing for these files, no more."""
    events: list[tuple[float, str, int]] = []
    usage: dict[str, Any] = {}
    timings: dict[str, Any] = {}
    finish = None
    at_s = 0.0
    for line in (SAMPLES / name).read_text().splitlines():
        stamp = re.match(r"#\s*t=([\d.]+)", line)
        if stamp:
            at_s = float(stamp[1])
        elif line == "data: [DONE]":
            events.append((at_s, "d", 0))
        elif line.startswith("data: "):
            chunk = json.loads(line[6:])
            usage = chunk.get("usage") or usage
            timings = chunk.get("timings") or timings
            choice = (chunk.get("choices") or [{}])[0]
            finish = choice.get("finish_reason") or finish
            text = choice.get("text") or (choice.get("delta") or {}).get("content") or ""
            events.append((at_s, "t" if text else "f" if choice.get("finish_reason") else "u", len(text)))
    details = usage.get("prompt_tokens_details") or {}
    return trace(
        events,
        usage=usage["completion_tokens"],
        prompt=usage["prompt_tokens"],
        cached=details.get("cached_tokens"),
        finish=finish,
        server_fields={"timings": timings} if timings else {},
    )


def request(
    request_trace: RequestTrace,
    trial_id: str = "len1000-c1-r0",
    *,
    asked: int = 1000,
    max_tokens: int = 64,
    started_at_s: float = 0.0,
    prompt: dict[str, Any] | None = None,
    failed: str | None = None,
    **fields: Any,
) -> Measurement:
    """A measurement of that trace."""
    facts = {"asked_len": asked, "expected_len": asked, "count_source": "token ids", "overhead_len": 7}
    return Measurement(
        trial_id=trial_id,
        started_at_s=started_at_s,
        max_tokens=max_tokens,
        prompt=PromptFacts(**(facts | (prompt or {}))),
        trace=request_trace,
        failure=Failure(name="Stalled", message=failed) if failed else None,
        **fields,
    )


def reading(at_s: float, running: int | None = 0, waiting: int | None = 0, **counters: float) -> ServerReading:
    """A look at the server's load and counters."""
    return ServerReading(
        at_s=at_s, source="/metrics", num_running=running, num_waiting=waiting, counters=dict(counters)
    )


def trial(
    trial_id: str = "len1000-c1-r0",
    *,
    context_len: int = 1000,
    concurrency: int = 1,
    repeat_index: int = 0,
    started_at_s: float = 0.0,
    took_s: float = 9.0,
    **fields: Any,
) -> Trial:
    """A trial line."""
    return Trial(
        trial_id=trial_id,
        context_len=context_len,
        concurrency=concurrency,
        repeat_index=repeat_index,
        started_at_s=started_at_s,
        ended_at_s=started_at_s + took_s,
        **fields,
    )


def header(*, spec: dict[str, Any] | None = None, **capabilities: Any) -> Header:
    """A header for a sweep of one server."""
    spec_fields: dict[str, Any] = {"url": "http://127.0.0.1:8080", "context_lens": (1000,)} | (spec or {})
    return Header(
        run_id="r",
        created_at="2026-11-20T10:00:00Z",
        deepdraft_version="0.1.0",
        command_line=("deepdraft", "sweep", "http://127.0.0.1:8080"),
        spec=SweepSpec(**spec_fields),
        capabilities=Capabilities(
            **({"engine": "llamacpp", "detected_by": "/props", "version": "b1", "model": "m"} | capabilities)
        ),
    )


def repeats(*traces: RequestTrace, context_len: int = 1000, apart_s: float = 10.0, **fields: Any) -> Run:
    """A run of one point at concurrency 1, one repeat a trace. `fields` go to `header` and to each trial."""
    trial_fields = {name: fields.pop(name) for name in list(fields) if name in Trial.__dataclass_fields__}
    request_fields = {
        name: fields.pop(name) for name in list(fields) if name in ("max_tokens", "prompt", "acceptance")
    }
    measurements, trials = [], []
    for place, one in enumerate(traces):
        trial_id, at_s = f"len{context_len}-c1-r{place}", place * apart_s
        measurements.append(request(one, trial_id, asked=context_len, started_at_s=at_s, **request_fields))
        trials.append(trial(trial_id, context_len=context_len, repeat_index=place, started_at_s=at_s, **trial_fields))
    return Run(header=header(**fields), measurements=tuple(measurements), trials=tuple(trials))


def accepted(**fields: Any) -> Acceptance:
    """An engine's counts."""
    return Acceptance(**({"source": "timings.draft_n_accepted"} | fields))
