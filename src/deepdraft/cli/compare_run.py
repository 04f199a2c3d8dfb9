"""`deepdraft compare --run`: measure two configurations in turns, each into a results file of its own."""

from __future__ import annotations

import argparse
import asyncio
import datetime
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepdraft.cli.connection import access, recorded_command_line
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
_NAMES = ("A", "B")


def measured(namespace: argparse.Namespace) -> tuple[list[Outcome], list[Path]]:
    """Run both sweeps to their end; returns their outcomes and files, A first.

    Raises UsageError for flags that can't be used.
    """
    from deepdraft.cli.interruption import interruption

    urls = _urls(namespace)
    specs = [_spec(namespace, url) for url in urls]
    paths = _paths(namespace)
    with interruption() as signals:
        return signals.run(_sweeps(namespace, specs, urls, paths)), paths


async def _sweeps(
    namespace: argparse.Namespace, specs: Sequence[SweepSpec], urls: Sequence[str], paths: Sequence[Path]
) -> list[Outcome]:
    """Both sweeps at once, in turns. When one can't go on the other stops too: alone it compares with nothing."""
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


def _urls(namespace: argparse.Namespace) -> list[str]:
    urls: list[str] = list(namespace.files)
    if any("://" not in url for url in urls):
        raise UsageError(
            "--run takes URLs", hint="deepdraft compare --run http://localhost:8000 http://localhost:8001"
        )
    if namespace.switch_command is None:
        if len(urls) != 2:
            raise UsageError("--run takes two URLs, or one with --switch-command")
        return urls
    if len(urls) != 1:
        raise UsageError("--switch-command is for one server: give one URL")
    if "{}" not in namespace.switch_command:
        raise UsageError(
            "--switch-command does not say where the name goes", hint="write './serve.sh {}': {} is A or B"
        )
    return urls * 2


def _spec(namespace: argparse.Namespace, url: str) -> SweepSpec:
    """What is asked of one of the two servers."""
    facts: dict[str, Any] = {**vars(namespace), "url": url, "embedded": None}
    if namespace.num_repeats is None:
        facts["num_repeats"] = _NUM_REPEATS
    spec = asked_spec(argparse.Namespace(**facts))
    if namespace.switch_command is None or namespace.wait_server is not None:
        return spec
    limits: Limits = replace(spec.limits, server_wait_s=_SWITCH_WAIT_S, start_wait_s=_SWITCH_WAIT_S)
    return replace(spec, limits=limits)


def _paths(namespace: argparse.Namespace) -> list[Path]:
    """The two results files: PREFIX-a.jsonl and PREFIX-b.jsonl."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    prefix: Path = namespace.out or Path(f"deepdraft-{stamp}")
    if prefix.suffix == ".jsonl":
        prefix = prefix.with_suffix("")
    return [prefix.with_name(f"{prefix.name}-{name.lower()}.jsonl") for name in _NAMES]


def first_problem(outcomes: Sequence[Outcome]) -> DeepdraftError | None:
    """What ended the measurement early; of a sweep that was stopped because of the other, the other's."""
    problems = [outcome.problem for outcome in outcomes if outcome.problem is not None]
    return min(problems, key=lambda problem: problem.exit_code) if problems else None
