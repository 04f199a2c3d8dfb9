"""A whole sweep: from a spec and a URL to a results file."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from deepdraft.adapters.adapter import Adapter
from deepdraft.adapters.detect import detect, wait_ready
from deepdraft.adapters.server import ServerLoading
from deepdraft.bench.calibration import Calibration
from deepdraft.bench.environment import environment
from deepdraft.bench.health import wait_for_server
from deepdraft.bench.limits import loading_limit_s
from deepdraft.bench.live import trial_figures, trial_title
from deepdraft.bench.plan import PlannedTrial, PointKey, PointRefused, planned_trials, refusals
from deepdraft.bench.progress import Progress, left_text, remaining_s
from deepdraft.bench.prompt import PromptMaker
from deepdraft.bench.secret import Secrets
from deepdraft.bench.session import Recorder, Session
from deepdraft.bench.trial import run_trial
from deepdraft.bench.turns import Turn, own_turn
from deepdraft.bench.who_counts import TextTokenizer, output_tokenizer, prompt_maker
from deepdraft.errors import (
    DeepdraftError,
    Interrupted,
    RequestFailed,
    ResultsError,
    ServerError,
    ServerLost,
    UsageError,
)
from deepdraft.records import End, Header, Refusal, Run, SweepSpec
from deepdraft.records.file import ResultsWriter, read_run
from deepdraft.records.redact import redacted, redacted_text
from deepdraft.transport.client import Client
from deepdraft.transport.endpoint import endpoint
from deepdraft.transport.tls import TlsOptions
from deepdraft.units import seconds_text
from deepdraft.version import VERSION

_COMPARED = ("version", "max_context_len", "kv_pool_tokens", "speculation", "speculation_method", "prefix_cache")
"""What may differ between the two halves of a resumed file, and must then be said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a sweep ended, and everything it holds."""

    run: Run | None
    """None when it ended before the results file was begun."""
    problem: DeepdraftError | None
    num_unsaved: int = 0
    """Lines that are in memory and not in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counting:
    """Who counts tokens on this server."""

    maker: PromptMaker
    calibration: Calibration
    output_tokenizer: tuple[str, TextTokenizer] | None


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
    turn: Turn = own_turn,
) -> Outcome:
    """Measure the server at `url` as the spec says and write results to `path`.

    Faults don't raise: they are the outcome's problem, beside what was measured before them. Cancelling the task
    that runs it ends the sweep in order: everything measured is kept, and the outcome says that it was interrupted.
    The file is begun once the server is known and its tokens can be counted, so that a mistyped flag leaves none.
    turn: entered around each trial, and around finding out what the server is, for sweeps that take turns.
    """
    hidden = Secrets(headers, admin_headers)
    progress.hidden = hidden.hidden
    client: Client | None = None
    recorder: Recorder | None = None
    problem: DeepdraftError | None = None
    try:
        if not is_resumed:
            _refuse_path(path)
        client = Client(endpoint(url), tls=tls, headers=headers)
        async with turn(None):
            adapter = await _adapter(client, spec, admin_headers, progress)
            counting = await _counting(spec, adapter, progress)
        recorder = _recorder(spec, adapter, path, is_resumed, command_line, hidden)
        session = Session(
            spec=spec,
            client=client,
            adapter=adapter,
            maker=counting.maker,
            recorder=recorder,
            progress=progress,
            output_tokenizer=counting.output_tokenizer,
        )
        if is_resumed:
            _note_resumption(session, url)
        _note_calibration(session, counting.calibration)
        await _measure(session, turn)
        recorder.keep(End(at_s=recorder.now_s(), outcome="complete"))
    except asyncio.CancelledError:
        problem = Interrupted("interrupted before anything was measured")
        if recorder is not None:
            problem = Interrupted("interrupted; what was measured is kept", hint=f"go on with --resume {path}")
            _keep_end(recorder, "interrupted", None)
    except DeepdraftError as error:
        problem = error
        problem.message = hidden.hidden(problem.message)
        if recorder is not None:
            _keep_end(recorder, "server_lost" if isinstance(error, ServerError) else "interrupted", error.message)
    finally:
        progress.close()
        if client is not None:
            await client.close()
        if recorder is not None:
            recorder.close()
    return Outcome(
        run=recorder.run() if recorder else None,
        problem=problem,
        num_unsaved=recorder.num_unsaved if recorder else 0,
    )


# --- before the first trial


def _refuse_path(path: Path) -> None:
    """Say now what would keep the file from being begun, not after a server has loaded for minutes."""
    try:
        path.lstat()
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise ResultsError(f"can't write {path}: there is no folder {path.parent}") from None
        return
    except OSError as error:
        raise ResultsError(f"can't write {path}: {error.strerror}") from None
    if path.is_dir():
        raise ResultsError(f"{path} is a folder", hint="name a file in it with --out")
    raise ResultsError(
        f"{path} exists already", hint=f"continue it with --resume {path}, or name another file with --out"
    )


async def _adapter(client: Client, spec: SweepSpec, admin_headers: Mapping[str, str], progress: Progress) -> Adapter:
    """Find out what the server is; waits for one that is still loading its model, and for one that is not there yet
    when the user asked for that."""
    await _wait_ready(client, spec, progress)
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


async def _wait_ready(client: Client, spec: SweepSpec, progress: Progress) -> None:
    limit_s = spec.limits.start_wait_s
    is_said = False

    def on_wait(waited_s: float, reason: str) -> None:
        nonlocal is_said
        if not is_said:
            progress.say(f"wait: {reason}; waiting up to {seconds_text(limit_s)}")
            progress.begin("waiting for the server", None, reason)
            is_said = True
        progress.tick(reason)

    try:
        await wait_ready(client, limit_s, on_wait)
    except ServerLoading:
        if loading_limit_s(spec.limits) <= limit_s:
            raise
        limit_s, is_said = loading_limit_s(spec.limits), False
        await wait_ready(client, limit_s, on_wait)


async def _counting(spec: SweepSpec, adapter: Adapter, progress: Progress) -> _Counting:
    """Find out who counts tokens. Raises ServerError when the server fails at it: nothing can be measured then."""
    found = adapter.capabilities
    who = " ".join(part for part in (found.engine, found.version) if part)
    try:
        maker = await prompt_maker(spec, adapter)
        progress.say(f"{who} with {found.model or 'an unnamed model'}, {adapter.endpoint} endpoint")
        progress.begin("calibrating prompts", None, "asking the server to count")
        return _Counting(
            maker=maker,
            calibration=await maker.calibrate(),
            output_tokenizer=await output_tokenizer(spec, adapter),
        )
    except RequestFailed as error:
        raise ServerError(f"tokens can't be counted here: {error.message}", hint=error.hint) from None


def _recorder(
    spec: SweepSpec, adapter: Adapter, path: Path, is_resumed: bool, command_line: tuple[str, ...], hidden: Secrets
) -> Recorder:
    """The results file, begun or opened again."""
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
        header = hidden.hidden_in(header)
        writer = ResultsWriter.create(path, header)
        return Recorder(header, writer, started_at=time.monotonic(), hidden=hidden)
    before = read_run(path).header.capabilities
    if (before.engine, before.model) != (found.engine, found.model):
        raise UsageError(
            f"{path} was measured on {before.engine} with {before.model}; "
            f"this server is {found.engine} with {found.model}",
            hint="one results file holds one server: start a new one with --out",
        )
    writer, repair = ResultsWriter.resume(path)
    earlier = read_run(path)
    age_s = (now - datetime.datetime.fromisoformat(earlier.header.created_at)).total_seconds()
    age_s = max(age_s, _last_s(earlier))  # the wall clock may have been set back since
    return Recorder(
        earlier.header, writer, started_at=time.monotonic() - age_s, hidden=hidden, earlier=earlier, repair=repair
    )


def _last_s(run: Run) -> float:
    """The latest moment a file speaks of, in seconds since its sweep began."""
    moments = [trial.ended_at_s for trial in run.trials] + [note.at_s for note in run.notes]
    moments += [result.started_at_s + (result.trace.end_s or 0.0) for result in run.measurements]
    return max(moments, default=0.0)


def _note_resumption(session: Session, url: str) -> None:
    recorder = session.recorder
    if recorder.repair:
        session.note("repair", recorder.repair)
    where = "" if url == recorder.header.spec.url else f", at {redacted_text(url)}"
    session.note("resume", f"resumed with Deepdraft {VERSION}{where}")
    before, now = recorder.header.capabilities, session.adapter.capabilities
    for name in _COMPARED:
        if getattr(before, name) != getattr(now, name):
            session.note("resume", f"the server's {name} was {getattr(before, name)}, now {getattr(now, name)}")


def _note_calibration(session: Session, calibration: Calibration) -> None:
    overhead = "unknown" if calibration.overhead_len is None else f"{calibration.overhead_len} tokens"
    session.note(
        "calibration",
        f"prompts counted by {calibration.count_source} ({calibration.method}), overhead {overhead}, "
        f"{calibration.num_probes} probes",
    )
    for note in calibration.notes:
        session.note("calibration", note)


# --- the trials


async def _measure(session: Session, turn: Turn) -> None:
    progress, recorder, adapter = session.progress, session.recorder, session.adapter
    earlier = recorder.run()
    refused: set[PointKey] = set()
    for refusal in refusals(session.spec, adapter.capabilities):
        _keep_refusal(session, refusal, refused)
    warmups = {result.trial_id for result in earlier.measurements if result.is_warmup}
    warmups |= {trial.trial_id for trial in earlier.trials if trial.is_warmup}
    done = {trial.trial_id for trial in earlier.trials}
    took: dict[PointKey, list[float]] = {}
    for trial in earlier.trials:
        took.setdefault((trial.context_len, trial.concurrency), []).append(trial.ended_at_s - trial.started_at_s)
    while True:
        trials = planned_trials(session.spec, refused, num_earlier_warmups=len(warmups))
        pending = [trial for trial in trials if trial.trial_id not in done]
        if all(trial.is_warmup for trial in pending):
            return
        progress.num_trials, progress.num_done = len(trials), len(trials) - len(pending)
        planned = pending[0]
        try:
            async with turn(planned):
                await _run_planned(session, planned, pending, took)
        except PointRefused as reason:
            refusal = Refusal(context_len=planned.context_len, concurrency=planned.concurrency, reason=str(reason))
            _keep_refusal(session, refusal, refused)
        else:
            done.add(planned.trial_id)


async def _run_planned(
    session: Session, planned: PlannedTrial, pending: list[PlannedTrial], took: dict[PointKey, list[float]]
) -> None:
    progress, title = session.progress, trial_title(planned)
    try:
        await wait_for_server(session)
        progress.begin(title, remaining_s([trial.point for trial in pending], took))
        trial, results = await run_trial(session, planned)
    except ServerLost as lost:
        raise ServerLost(f"{lost.message}, at {title}", hint=lost.hint) from None
    took.setdefault(planned.point, []).append(trial.ended_at_s - trial.started_at_s)
    progress.done()
    left = left_text(remaining_s([trial.point for trial in pending[1:]], took)).replace(",", ";")
    progress.say(f"{progress.count}{title}: {trial_figures(session.recorder.header, trial, results)}{left}")


def _keep_refusal(session: Session, refusal: Refusal, refused: set[PointKey]) -> None:
    """Say that a point is not sent, and record it unless the file says so already."""
    key = refusal.context_len, refusal.concurrency
    refused.add(key)
    session.progress.say(f"not sent: {refusal.context_len:,} tokens x {refusal.concurrency}: {refusal.reason}")
    if key not in {(known.context_len, known.concurrency) for known in session.recorder.run().refusals}:
        session.recorder.keep(refusal)


def _keep_end(recorder: Recorder, outcome: Literal["interrupted", "server_lost"], message: str | None) -> None:
    """Say in the file how it ended, if the file can still be written."""
    with contextlib.suppress(ResultsError):
        recorder.keep(End(at_s=recorder.now_s(), outcome=outcome, message=message))
