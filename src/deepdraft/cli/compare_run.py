"""`deepdraft compare --run`: measure configurations in turns, each into a results file of its own.

A configuration is a URL, or an embedded server with its drafting flags in one word: "embedded --drafter ngram".
Embedded servers all run at once, and one that isn't measured waits without using the processor.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import string
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepdraft.cli.connection import access, recorded_command_line
from deepdraft.cli.drafting import embedded_server, is_embedded
from deepdraft.cli.measured_server import measured_server
from deepdraft.cli.sweep_spec import asked_spec
from deepdraft.errors import DeepdraftError, ServerError, UsageError
from deepdraft.records import Limits, SweepSpec

if TYPE_CHECKING:
    from deepdraft.bench.sweep import Outcome
    from deepdraft.bench.turns import Turns

_NUM_REPEATS = 4
"""Even, so that A B B A is whole."""
_SWITCH_WAIT_S = 900.0
"""How long a server may take to come up after a switch, where --wait-server does not say."""
_STANDARD_ERROR = 2
_NAMES = string.ascii_uppercase
_HINT = "deepdraft compare --run http://localhost:8000 http://localhost:8001, or: embedded 'embedded --drafter ngram'"


def measured(namespace: argparse.Namespace) -> tuple[list[Outcome], list[Path]]:
    """Run all sweeps to their end; returns their outcomes and files, A first.

    Raises UsageError for flags that can't be used.
    """
    from deepdraft.cli.interruption import interruption

    specs = [_spec(namespace, name) for name in _servers(namespace)]
    if any(spec.context_lens != specs[0].context_lens for spec in specs):
        raise UsageError("these servers have no lengths in common by default", hint="give --context-len")
    paths = _paths(namespace, len(specs))
    with interruption() as signals, contextlib.ExitStack() as started:
        urls = [started.enter_context(measured_server(spec, is_quiet=bool(namespace.quiet))) for spec in specs]
        return signals.run(_sweeps(namespace, specs, urls, paths)), paths


async def _sweeps(
    namespace: argparse.Namespace, specs: Sequence[SweepSpec], urls: Sequence[str], paths: Sequence[Path]
) -> list[Outcome]:
    """All sweeps at once, in turns. When one can't go on the others stop too: one alone compares with nothing."""
    from deepdraft.bench.turns import Turns

    command: str | None = namespace.switch_command

    async def switch(index: int) -> None:
        if command is not None:
            await _switch(command, _NAMES[index])

    turns = Turns(
        specs[0],
        len(specs),
        "by length" if command is None else "by round",
        None if command is None else switch,
    )
    tasks = [
        asyncio.create_task(_sweep(namespace, turns, index, specs[index], urls[index], paths[index]))
        for index in range(len(specs))
    ]
    try:
        pending = set(tasks)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if any(task.result().problem is not None for task in done):
                break
    except asyncio.CancelledError:
        pass  # each sweep is cancelled below and says in its file that it was interrupted
    for task in tasks:
        task.cancel()
    return list(await asyncio.gather(*tasks))


async def _sweep(
    namespace: argparse.Namespace, turns: Turns, index: int, spec: SweepSpec, url: str, path: Path
) -> Outcome:
    from deepdraft.bench.progress import Progress
    from deepdraft.bench.sweep import sweep

    entry = access(namespace)
    stream = None if namespace.quiet else sys.stderr
    try:
        return await sweep(
            spec,
            url=url,
            path=path,
            is_resumed=False,
            headers=entry.headers,
            admin_headers=entry.admin_headers,
            tls=entry.tls,
            progress=Progress(num_trials=0, stream=stream, label=f"{_NAMES[index]}: "),
            command_line=recorded_command_line(namespace.words),
            turn=turns.of(index),
        )
    finally:
        await turns.leave(index)


async def _switch(command: str, name: str) -> None:
    """Run the user's command; its talk goes to standard error. Raises ServerError when it fails."""
    words = command.replace("{}", name)
    print(f"switching to {name}: {words}", file=sys.stderr)
    child = await asyncio.create_subprocess_shell(words, stdin=asyncio.subprocess.DEVNULL, stdout=_STANDARD_ERROR)
    try:
        code = await child.wait()
    except asyncio.CancelledError:
        child.terminate()
        await child.wait()
        raise
    if code:
        raise ServerError(f"--switch-command failed for {name}: exit code {code}")


def _servers(namespace: argparse.Namespace) -> list[str]:
    """What is to be measured, A first: URLs and embedded servers."""
    names: list[str] = list(namespace.files)
    if any("://" not in name and not is_embedded(name) for name in names):
        raise UsageError("--run takes URLs and embedded servers", hint=_HINT)
    if namespace.switch_command is None:
        if not 2 <= len(names) <= len(_NAMES):
            raise UsageError("--run takes two servers or more, or one URL with --switch-command", hint=_HINT)
        return names
    if len(names) != 1 or is_embedded(names[0]):
        raise UsageError("--switch-command is for one server: give one URL")
    if "{}" not in namespace.switch_command:
        raise UsageError(
            "--switch-command does not say where the name goes", hint="write './serve.sh {}': {} is A or B"
        )
    return names * 2


def _spec(namespace: argparse.Namespace, name: str) -> SweepSpec:
    """What is asked of one of the servers."""
    url, flags = embedded_server(name) if is_embedded(name) else (name, ())
    facts: dict[str, Any] = {**vars(namespace), "url": url, "embedded": None}
    if namespace.num_repeats is None:
        facts["num_repeats"] = _NUM_REPEATS
    spec = replace(asked_spec(argparse.Namespace(**facts)), embedded_flags=flags)
    if namespace.switch_command is None or namespace.wait_server is not None:
        return spec
    limits: Limits = replace(spec.limits, server_wait_s=_SWITCH_WAIT_S, start_wait_s=_SWITCH_WAIT_S)
    return replace(spec, limits=limits)


def _paths(namespace: argparse.Namespace, num_servers: int) -> list[Path]:
    """The results files: PREFIX-a.jsonl, PREFIX-b.jsonl ..."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    prefix: Path = namespace.out or Path(f"deepdraft-{stamp}")
    if prefix.suffix == ".jsonl":
        prefix = prefix.with_suffix("")
    return [prefix.with_name(f"{prefix.name}-{name.lower()}.jsonl") for name in _NAMES[:num_servers]]


def first_problem(outcomes: Sequence[Outcome]) -> DeepdraftError | None:
    """What ended the measurement early; of a sweep that was stopped because of another, the other's."""
    problems = [outcome.problem for outcome in outcomes if outcome.problem is not None]
    return min(problems, key=lambda problem: problem.exit_code) if problems else None
