"""Several sweeps that take turns: one thing at a time is measured, in an order under which drift cancels.

By length: at each context length A then B, in the next round B then A, and so on: A B B A over the repeats, so that a
steady drift adds the same to both. By round, for one server that has to be switched over (minutes each time): a whole
round of A, two of B, two of A, ... the same A B B A with as few switches as it takes.

A turn is given once every sweep that has not ended waits for one; it goes to the sweep whose next step comes first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Literal

from deepdraft.bench.plan import PlannedTrial, planned_trials
from deepdraft.records import SweepSpec

Turn = Callable[[PlannedTrial | None], AbstractAsyncContextManager[None]]
"""What a sweep enters for each of its trials, and with None for finding out what the server is."""

Order = Literal["by length", "by round"]
Switch = Callable[[int], Awaitable[None]]
"""Makes the server ready for the sweep of this index."""

_Key = tuple[int, int, int]


@contextlib.asynccontextmanager
async def own_turn(planned: PlannedTrial | None) -> AsyncIterator[None]:
    """The turn of a sweep that is alone: always at once."""
    yield


class Turns:
    """The turns of `num_sweeps` sweeps with the same spec."""

    def __init__(self, spec: SweepSpec, num_sweeps: int, order: Order, switch: Switch | None = None) -> None:
        self._order = order
        self._switch = switch
        self._places = {trial.trial_id: place for place, trial in enumerate(planned_trials(spec))}
        self._running = set(range(num_sweeps))
        self._num_sweeps = num_sweeps
        self._waiting: dict[int, _Key] = {}
        self._holder: int | None = None
        self._switched_to: int | None = None
        self._changed = asyncio.Condition()

    def of(self, index: int) -> Turn:
        """The turn of the sweep with that index."""

        @contextlib.asynccontextmanager
        async def turn(planned: PlannedTrial | None) -> AsyncIterator[None]:
            await self._take(index, self._key(index, planned))
            try:
                if self._switch is not None and self._switched_to != index:
                    self._switched_to = None
                    await self._switch(index)
                    self._switched_to = index
                yield
            finally:
                await self._give(index)

        return turn

    async def leave(self, index: int) -> None:
        """This sweep has ended: the others don't wait for it any more."""
        async with self._changed:
            self._running.discard(index)
            self._changed.notify_all()

    async def _take(self, index: int, key: _Key) -> None:
        async with self._changed:
            self._waiting[index] = key
            self._changed.notify_all()
            try:
                await self._changed.wait_for(lambda: self._is_next(index))
                self._holder = index
            finally:
                del self._waiting[index]

    def _is_next(self, index: int) -> bool:
        if self._holder is not None or not self._waiting.keys() >= self._running:
            return False
        return min(self._waiting, key=self._waiting.__getitem__) == index

    async def _give(self, index: int) -> None:
        async with self._changed:
            self._holder = None
            self._changed.notify_all()

    def _key(self, index: int, planned: PlannedTrial | None) -> _Key:
        """Where a step stands: round, then place and side, or side and place."""
        if planned is None:
            round_index, place = 0, -2
        elif planned.is_warmup:
            round_index, place = 0, -1
        else:
            round_index, place = planned.repeat_index, self._places[planned.trial_id]
        side = index if round_index % 2 == 0 else self._num_sweeps - 1 - index
        if self._order == "by length":
            return round_index, place, side
        return round_index, side, place
