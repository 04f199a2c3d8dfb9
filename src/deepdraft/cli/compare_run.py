"""`deepdraft compare --run`: measure configurations in turns, each into a results file of its own.

Embedded servers all run at once, and one that isn't measured waits without using the processor. What the sides are,
and where a comparison that was cut short goes on: `compare_side`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deepdraft.cli.compare_side import Side, is_begun, new_sides, resumed_sides
from deepdraft.cli.connection import access, recorded_command_line
from deepdraft.cli.measured_server import measured_server
from deepdraft.cli.results_path import results_path
from deepdraft.errors import DeepdraftError, Interrupted, ServerError

if TYPE_CHECKING:
    from deepdraft.bench.sweep import Outcome
    from deepdraft.bench.turns import Turns

_STANDARD_ERROR = 2


def measured(namespace: argparse.Namespace) -> tuple[list[Outcome], list[Path]]:
    """Run all sweeps to their end; returns their outcomes and files, A first.

    Raises UsageError for flags that can't be used or don't fit the files that are gone on with, ResultsError for
    files that are there and should not be, or the other way round.
    """
    from deepdraft.cli.interruption import interruption

    prefix, is_resumed = results_path(
        namespace, usage="compare --run URL URL", metavar="PREFIX", default_suffix="", is_begun=is_begun
    )
    sides = resumed_sides(namespace, prefix) if is_resumed else new_sides(namespace, prefix)
    paths = [side.path for side in sides]
    if all(side.is_done for side in sides):
        print(f"{', '.join(map(str, paths))} are complete: nothing to resume", file=sys.stderr)
    with interruption() as signals, contextlib.ExitStack() as started:
        urls = [
            side.spec.url
            if side.is_done
            else started.enter_context(measured_server(side.spec, is_quiet=bool(namespace.quiet)))
            for side in sides
        ]
        outcomes = signals.run(_sweeps(namespace, sides, urls))
    _say_how_to_go_on(outcomes, paths)
    return outcomes, paths


async def _sweeps(namespace: argparse.Namespace, sides: Sequence[Side], urls: Sequence[str]) -> list[Outcome]:
    """All sweeps at once, in turns. When one can't go on the others stop too: one alone compares with nothing."""
    from deepdraft.bench.turns import Turns

    command: str | None = namespace.switch_command

    async def switch(index: int) -> None:
        if command is not None:
            await _switch(command, sides[index].name)

    turns = Turns(
        sides[0].spec,
        len(sides),
        "by length" if command is None else "by round",
        None if command is None else switch,
    )
    tasks = [
        asyncio.create_task(_sweep(namespace, turns, index, side, urls[index])) for index, side in enumerate(sides)
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


async def _sweep(namespace: argparse.Namespace, turns: Turns, index: int, side: Side, url: str) -> Outcome:
    """One side's sweep, to its end; of one that is done already, what it holds."""
    from deepdraft.bench.progress import Progress
    from deepdraft.bench.sweep import Outcome, sweep

    try:
        if side.is_done:
            return Outcome(run=side.earlier, problem=None)
        entry = access(namespace)
        stream = None if namespace.quiet else sys.stderr
        return await sweep(
            side.spec,
            url=url,
            path=side.path,
            is_resumed=side.earlier is not None,
            headers=entry.headers,
            admin_headers=entry.admin_headers,
            tls=entry.tls,
            progress=Progress(num_trials=0, stream=stream, label=f"{side.name}: "),
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


def first_problem(outcomes: Sequence[Outcome]) -> DeepdraftError | None:
    """What ended the measurement early; of a sweep that was stopped because of another, the other's."""
    problems = [outcome.problem for outcome in outcomes if outcome.problem is not None]
    return min(problems, key=lambda problem: problem.exit_code) if problems else None


def _say_how_to_go_on(outcomes: Sequence[Outcome], paths: Sequence[Path]) -> None:
    """A comparison is gone on with as a whole, not file by file."""
    problem = first_problem(outcomes)
    if problem is None or all(outcome.run is None for outcome in outcomes):
        return
    prefix = paths[0].with_name(paths[0].stem.removesuffix("-a"))
    words = f"go on with --run --resume {prefix}"
    if isinstance(problem, Interrupted):
        problem.hint = words
    elif problem.hint is None:
        problem.hint = f"what was measured is kept; {words}"
