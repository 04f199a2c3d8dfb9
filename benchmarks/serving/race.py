"""One race: servers of the same weights, measured in turns through HTTP by our own sweep.

All servers of a race run at once and wait while another one is measured, so that what changes on the machine changes
for all. A round measures each server once at one length; the order turns round from round to round.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deepdraft.bench.progress import Progress
from deepdraft.bench.sweep import sweep
from deepdraft.embedded import EmbeddedSpec, running
from deepdraft.errors import ServerLost
from deepdraft.guards import guards_of
from deepdraft.metrics import points_of
from deepdraft.records import Run, SweepSpec
from deepdraft.transport.tls import TlsOptions

MAX_ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A server in a race."""

    name: str
    server: EmbeddedSpec
    tokenizer: Path | None = None
    """tokenizer.json, for a server that can't count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Servers of the same weights; the first is ours."""

    title: str
    contenders: tuple[Contender, ...]
    max_context_len: int
    """What the model was made for, output included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """One server at one length in one round. None: the sweep gave no such figure."""

    contender: str
    context_len: int
    round_index: int
    prefill_tok_s: float | None
    decode_tok_s: float | None
    violated: tuple[str, ...] = ()
    """Guards that put the figures in doubt."""
    is_lost: bool = False
    """The server died at this length; it takes no further part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How much is measured."""

    context_lens: tuple[int, ...]
    decode_len: int
    point_limit_s: float
    """No round is begun at a length that would not end within this; the first always is."""


def lens_of(race: Race, pace: Pace) -> tuple[int, ...]:
    """The lengths that the race's model can take."""
    return tuple(length for length in pace.context_lens if length + pace.decode_len < race.max_context_len)


def speeds(race: Race, pace: Pace, folder: Path, say: Callable[[str], None]) -> list[Speed]:
    """Run a race. folder: for results files, one a sweep."""
    lens = lens_of(race, pace)
    if not lens:
        return []
    with contextlib.ExitStack() as stack:
        urls = {}
        for each in race.contenders:
            say(f"starting {each.name}")
            server = replace(each.server, context_len=max(lens) + pace.decode_len + 1)
            urls[each.name] = stack.enter_context(running(server)).url
        track = _Track(race, pace, folder, urls, say)
        for each in race.contenders:
            track.measured(each, min(lens), "warmup")
        found: list[Speed] = []
        for length in lens:
            lost = {speed.contender for speed in found if speed.is_lost}
            found += _rounds(track, [each for each in race.contenders if each.name not in lost], length)
        return found


@dataclass(frozen=True, slots=True)
class _Track:
    """What all measurements of a race share."""

    race: Race
    pace: Pace
    folder: Path
    urls: dict[str, str]
    say: Callable[[str], None]

    def measured(self, contender: Contender, context_len: int, label: str) -> Run:
        """One request to one server."""
        spec = SweepSpec(
            url=self.urls[contender.name],
            endpoint="completions",
            context_lens=(context_len,),
            decode_len=self.pace.decode_len,
            num_repeats=1,
            num_warmups=0,
            tokenizer=None if contender.tokenizer is None else str(contender.tokenizer),
        )
        name = "".join(letter if letter.isalnum() else "-" for letter in contender.name)
        outcome = asyncio.run(
            sweep(
                spec,
                url=spec.url,
                path=self.folder / f"{name}-{context_len}-{label}.jsonl",
                is_resumed=False,
                headers={},
                admin_headers={},
                tls=TlsOptions(),
                progress=Progress(num_trials=0, stream=None),
                command_line=("benchmarks.serving",),
            )
        )
        if outcome.run is None or outcome.problem is not None:
            raise outcome.problem or RuntimeError(f"no results from {contender.name}")
        return outcome.run


def _rounds(track: _Track, contenders: Sequence[Contender], context_len: int) -> list[Speed]:
    found: list[Speed] = []
    began = time.monotonic()
    for round_index in range(MAX_ROUNDS):
        lost = {speed.contender for speed in found if speed.is_lost}
        order = contenders if round_index % 2 == 0 else contenders[::-1]
        for each in order:
            if each.name not in lost:
                found.append(_round(track, each, context_len, round_index))
                track.say(_told(found[-1]))
        round_s = (time.monotonic() - began) / (round_index + 1)
        if round_s * (round_index + 2) > track.pace.point_limit_s:
            break
    return found


def _round(track: _Track, contender: Contender, context_len: int, round_index: int) -> Speed:
    try:
        run = track.measured(contender, context_len, f"round{round_index}")
    except ServerLost as lost:
        track.say(f"{contender.name}: {lost.message}")
        return Speed(
            contender=contender.name,
            context_len=context_len,
            round_index=round_index,
            prefill_tok_s=None,
            decode_tok_s=None,
            is_lost=True,
        )
    return _speed(contender.name, context_len, round_index, run)


def _speed(contender: str, context_len: int, round_index: int, run: Run) -> Speed:
    (point,) = points_of(run)
    prefill, decode = point.summary("prefill_tok_s"), point.summary("decode_tok_s")
    return Speed(
        contender=contender,
        context_len=context_len,
        round_index=round_index,
        prefill_tok_s=None if prefill is None else prefill.median,
        decode_tok_s=None if decode is None else decode.median,
        violated=tuple(report.name for report in guards_of(run, point) if report.state == "violated"),
    )


def _told(speed: Speed) -> str:
    figures = [
        f"{name} {'unknown' if value is None else f'{value:.1f}'} tok/s"
        for name, value in (("prefill", speed.prefill_tok_s), ("decode", speed.decode_tok_s))
    ]
    return f"{speed.context_len:,} tokens, round {speed.round_index}, {speed.contender}: {', '.join(figures)}"
