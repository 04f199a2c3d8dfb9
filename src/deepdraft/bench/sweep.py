"""A whole sweep: from a spec and a URL to a results file."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import secrets
import signal
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from deepdraft.adapters.adapter import Adapter
from deepdraft.adapters.detect import detect, wait_ready
from deepdraft.adapters.server import ServerLoading
from deepdraft.bench.environment import environment
from deepdraft.bench.health import wait_for_server
from deepdraft.bench.plan import PlannedTrial, planned_trials, refusals
from deepdraft.bench.progress import Progress, remaining_s
from deepdraft.bench.session import Recorder, Session
from deepdraft.bench.trial import run_trial
from deepdraft.bench.who_counts import output_tokenizer, prompt_maker
from deepdraft.errors import DeepdraftError, Interrupted, ResultsError, ServerError, UsageError
from deepdraft.metrics import tpot_s, ttft_s
from deepdraft.records import End, Header, Note, Run, SweepSpec, Trial
from deepdraft.records.file import ResultsWriter, read_run
from deepdraft.records.redact import redacted, redacted_text
from deepdraft.transport.client import Client
from deepdraft.transport.endpoint import endpoint
from deepdraft.transport.tls import TlsOptions
from deepdraft.units import seconds_text
from deepdraft.version import VERSION

_LOADING_LIMIT_S = 900.0
"""A server that says it is loading will be there: large models take minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a sweep ended, and everything it holds."""

    run: Run | None
    """None when it ended before the results file was begun."""
    problem: DeepdraftError | None
    num_unsaved: int = 0
    """Lines that are in memory and not in the file."""


async def sweep(
    spec: SweepSpec,
    *,
    url: str,
    path: Path,
    is_resumed: bool,
    headers: Mapping[str, str],
    admin_headers: Mapping[str, str],
    tls: TlsOptions,
    progress: Progress,
    command_line: tuple[str, ...],
) -> Outcome:
    """Measure the server at `url` as the spec says and write results to `path`.

    Faults don't raise: they are the outcome's problem, beside what was measured before them.
    """
    recorder: Recorder | None = None
    client: Client | None = None
    problem: DeepdraftError | None = None
    try:
        with _terminated_like_ctrl_c():
            if not is_resumed and path.exists():
                raise ResultsError(
                    f"{path} exists already",
                    hint=f"continue it with --resume {path}, or name another file with --out",
                )
            client = Client(endpoint(url), tls=tls, headers=headers)
            adapter = await _adapter(client, spec, admin_headers, progress)
            recorder, started_at = _recorder(spec, adapter, path, is_resumed, command_line)
            session = await _session(spec, client, adapter, recorder, progress, started_at)
            await _measure(session)
            recorder.keep(End(at_s=session.now_s(), outcome="complete"))
    except asyncio.CancelledError:
        problem = Interrupted("interrupted before anything was measured")
        if recorder is not None:
            problem = Interrupted("interrupted; what was measured is kept", hint=f"go on with --resume {path}")
            _keep_end(recorder, "interrupted", problem.message)
    except DeepdraftError as error:
        problem = error
        if recorder is not None:
            outcome: Literal["interrupted", "server_lost"] = (
                "server_lost" if isinstance(error, ServerError) else "interrupted"
            )
            _keep_end(recorder, outcome, error.message)
    finally:
        progress.close()
        if client is not None:
            await client.close()
        if recorder is not None:
            recorder.writer.close()
    return Outcome(
        run=recorder.run() if recorder else None,
        problem=problem,
        num_unsaved=recorder.num_unsaved if recorder else 0,
    )


async def _adapter(client: Client, spec: SweepSpec, admin_headers: Mapping[str, str], progress: Progress) -> Adapter:
    """Find out what the server is; waits for one that is still loading its model, and for one that is not there yet
    when the user asked for that."""

    def on_wait(waited_s: float, reason: str) -> None:
        progress.begin("the server", None)
        progress.tick(f"not ready after {seconds_text(waited_s)} ({reason})")

    wait_s = spec.limits.start_wait_s
    try:
        await wait_ready(client, wait_s, on_wait)
    except ServerLoading:
        await wait_ready(client, max(wait_s, _LOADING_LIMIT_S), on_wait)
    adapter = await detect(
        client,
        engine=spec.engine,
        model=spec.model,
        endpoint=spec.endpoint,
        server_log=Path(spec.server_log) if spec.server_log else None,
        admin_headers=admin_headers,
        extra_body=spec.extra_body,
        keep_cache=spec.keep_cache,
    )
    await adapter.settle()
    return adapter


def _recorder(
    spec: SweepSpec, adapter: Adapter, path: Path, is_resumed: bool, command_line: tuple[str, ...]
) -> tuple[Recorder, float]:
    """The results file, begun or opened again, and the monotonic time it counts from."""
    found = adapter.capabilities
    now = datetime.datetime.now(datetime.UTC)
    if not is_resumed:
        header = Header(
            run_id=secrets.token_hex(6),
            created_at=now.isoformat(timespec="milliseconds"),
            deepdraft_version=VERSION,
            command_line=command_line,
            spec=replace(spec, url=redacted_text(spec.url), extra_body=redacted(spec.extra_body)),
            capabilities=found,
            environment=environment(),
        )
        return Recorder(header=header, writer=ResultsWriter.create(path, header)), time.monotonic()
    earlier = read_run(path)
    before = earlier.header.capabilities
    if (before.engine, before.model) != (found.engine, found.model):
        raise UsageError(
            f"{path} was measured on {before.engine} with {before.model}; "
            f"this server is {found.engine} with {found.model}",
            hint="one results file holds one server: start a new one with --out",
        )
    writer, repair = ResultsWriter.resume(path)
    age_s = (now - datetime.datetime.fromisoformat(earlier.header.created_at)).total_seconds()
    recorder = Recorder(header=earlier.header, writer=writer)
    recorder.lines += [*earlier.measurements, *earlier.trials, *earlier.refusals, *earlier.notes, *earlier.ends]
    if repair:
        recorder.keep(Note(at_s=age_s, topic="repair", message=repair))
    recorder.keep(Note(at_s=age_s, topic="resume", message=f"resumed with Deepdraft {VERSION}"))
    return recorder, time.monotonic() - age_s


async def _session(
    spec: SweepSpec, client: Client, adapter: Adapter, recorder: Recorder, progress: Progress, started_at: float
) -> Session:
    maker = await prompt_maker(spec, adapter)
    session = Session(
        spec=spec,
        client=client,
        adapter=adapter,
        maker=maker,
        recorder=recorder,
        progress=progress,
        started_at=started_at,
        output_tokenizer=await output_tokenizer(spec, adapter),
    )
    found = adapter.capabilities
    progress.say(f"{found.engine} {found.version or ''} with {found.model or 'an unnamed model'}, {adapter.endpoint}")
    progress.begin("calibrating prompts", None)
    calibration = await maker.calibrate()
    session.note(
        "calibration",
        f"prompts counted by {calibration.count_source} ({calibration.method}), overhead "
        f"{'unknown' if calibration.overhead_len is None else calibration.overhead_len} tokens, "
        f"{calibration.num_probes} probes",
    )
    for note in calibration.notes:
        session.note("calibration", note)
    return session


async def _measure(session: Session) -> None:
    refused = refusals(session.spec, session.adapter.capabilities)
    known = {(refusal.context_len, refusal.concurrency) for refusal in session.recorder.run().refusals}
    for refusal in refused:
        session.progress.say(f"not sent: {refusal.context_len:,} x {refusal.concurrency}: {refusal.reason}")
        if (refusal.context_len, refusal.concurrency) not in known:
            session.recorder.keep(refusal)
    is_refused = {(refusal.context_len, refusal.concurrency) for refusal in refused}
    trials = [
        trial for trial in planned_trials(session.spec) if (trial.context_len, trial.concurrency) not in is_refused
    ]
    done = {trial.trial_id for trial in session.recorder.run().trials}
    # A server that was restarted is cold again: a resumed sweep warms it up anew.
    pending = [trial for trial in trials if trial.trial_id not in done or trial.is_warmup]
    if not any(not trial.is_warmup for trial in pending):
        pending = []
    session.progress.num_trials = len(trials)
    session.progress.num_done = len(trials) - len(pending)
    took: dict[tuple[int, int], list[float]] = {}
    for index, planned in enumerate(pending):
        await wait_for_server(session)
        rest = [(trial.context_len, trial.concurrency) for trial in pending[index:]]
        session.progress.begin(_title(planned), remaining_s(rest, took))
        trial = await run_trial(session, planned)
        took.setdefault((planned.context_len, planned.concurrency), []).append(trial.ended_at_s - trial.started_at_s)
        session.progress.done()
        session.progress.say(_result_line(session, planned, trial))


def _title(planned: PlannedTrial) -> str:
    what = "warm-up" if planned.is_warmup else f"repeat {planned.repeat_index + 1}"
    concurrency = f" x {planned.concurrency}" if planned.concurrency > 1 else ""
    return f"{planned.context_len:,} tokens{concurrency}, {what}"


def _result_line(session: Session, planned: PlannedTrial, trial: Trial) -> str:
    """What one trial gave, in a line: medians over its requests."""
    results = [
        line
        for line in session.recorder.run().measurements
        if line.trial_id == trial.trial_id and line.started_at_s >= trial.started_at_s
    ]
    done = [result.trace for result in results if result.failure is None]
    parts = []
    for name, values in (("TTFT", [ttft_s(trace) for trace in done]), ("token", [tpot_s(trace) for trace in done])):
        known = sorted(value for value in values if value is not None)
        if known:
            parts.append(f"{name} {seconds_text(statistics.median(known))}")
    num_failed = len(results) - len(done)
    if num_failed:
        parts.append(f"{num_failed} failed")
    found = [result.needle_found for result in results if result.needle_found is not None]
    if found:
        parts.append("needle found" if all(found) else f"needle found in {sum(found)} of {len(found)}")
    return f"[{session.progress.num_done}/{session.progress.num_trials}] {_title(planned)}: {', '.join(parts) or '-'}"


def _keep_end(recorder: Recorder, outcome: Literal["interrupted", "server_lost"], message: str) -> None:
    """Say in the file how it ended, if the file can still be written."""
    at_s = max((line.at_s for line in recorder.lines if isinstance(line, Note)), default=0.0)
    with contextlib.suppress(ResultsError):
        recorder.keep(End(at_s=at_s, outcome=outcome, message=message))


@contextlib.contextmanager
def _terminated_like_ctrl_c() -> Iterator[None]:
    """SIGTERM ends a sweep as Ctrl-C does: with everything kept."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    with contextlib.suppress(NotImplementedError, ValueError):  # not in a side thread, not on every system
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        yield
    finally:
        with contextlib.suppress(NotImplementedError, ValueError):
            loop.remove_signal_handler(signal.SIGTERM)
