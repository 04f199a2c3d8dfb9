"""Sweeps that take turns: in which order, and that nothing runs beside anything else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from deepdraft.bench.plan import planned_trials
from deepdraft.bench.turns import Order, Turns
from deepdraft.records import SweepSpec

SPEC = SweepSpec(url="http://127.0.0.1", context_lens=(100, 200), num_repeats=4)


def walked(
    order: Order, *, left_out: Sequence[str] = (), stops_at: str | None = None, num_done: tuple[int, int] = (0, 0)
) -> tuple[list[str], list[int]]:
    """What ran in which order, as `A len100-c1-r0`, and the switches. left_out: trials that B does not run;
    stops_at: where A ends early; num_done: trials that A and B have behind them, warm-ups apart."""
    ran: list[str] = []
    switches: list[int] = []

    async def walk() -> None:
        num_inside = 0

        async def switch(index: int) -> None:
            switches.append(index)

        turns = Turns(SPEC, 2, order, switch)

        async def sweep(index: int) -> None:
            nonlocal num_inside
            turn = turns.of(index)
            warmup, *trials = planned_trials(SPEC)
            steps = [None, warmup, *trials[num_done[index] :]]
            for step in steps:
                name = "start" if step is None else step.trial_id
                if index == 1 and name in left_out:
                    continue
                async with turn(step):
                    num_inside += 1
                    assert num_inside == 1
                    await asyncio.sleep(0.0005 * (index + 1))
                    ran.append(f"{'AB'[index]} {name}")
                    num_inside -= 1
                if index == 0 and name == stops_at:
                    break
            await turns.leave(index)

        await asyncio.wait_for(asyncio.gather(sweep(0), sweep(1)), 5)

    asyncio.run(walk())
    return ran, switches


def sides(ran: Sequence[str], length: int) -> str:
    return "".join(name[0] for name in ran if f"len{length}-" in name)


def test_by_length_each_length_goes_a_b_b_a() -> None:
    ran, _ = walked("by length")
    assert sides(ran, 100) == sides(ran, 200) == "ABBAABBA"
    assert ran[:4] == ["A start", "B start", "A warmup-0", "B warmup-0"]
    repeats = [name.split("-r")[1] for name in ran[4:]]
    assert repeats == sorted(repeats)
    assert ran[4:8] == ["A len100-c1-r0", "B len100-c1-r0", "A len200-c1-r0", "B len200-c1-r0"]


def test_by_round_the_server_is_switched_as_seldom_as_it_takes() -> None:
    ran, switches = walked("by round")
    assert sides(ran, 100) == sides(ran, 200) == "ABBAABBA"
    assert switches == [0, 1, 0, 1, 0]
    assert ran[:4] == ["A start", "A warmup-0", "A len100-c1-r0", "A len200-c1-r0"]


def test_a_point_that_one_of_them_refuses_leaves_the_others_in_step() -> None:
    refused = [f"len100-c1-r{repeat_index}" for repeat_index in range(4)]
    ran, _ = walked("by length", left_out=refused)
    assert sides(ran, 200) == "ABBAABBA"
    assert sides(ran, 100) == "AAAA"


def test_one_that_ended_is_not_waited_for() -> None:
    ran, _ = walked("by length", stops_at="len100-c1-r0")
    assert ran[-1].startswith("B ")
    assert sum(name.startswith("B len") for name in ran) == 8


def test_a_turn_that_is_cancelled_while_it_waits_is_given_to_the_other() -> None:
    async def scene() -> bool:
        turns = Turns(SPEC, 2, "by length")

        async def enter(index: int) -> bool:
            async with turns.of(index)(None):
                await asyncio.sleep(0.01)
                return True

        first = asyncio.create_task(enter(0))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await turns.leave(0)
        return await asyncio.wait_for(enter(1), 2)

    assert asyncio.run(scene())


@pytest.mark.parametrize("order", ["by length", "by round"])
def test_what_was_cut_short_goes_on_in_the_order_it_would_have_had(order: Order) -> None:
    whole = [name for name in walked(order)[0] if " len" in name]
    for num_ran in range(len(whole)):
        before, after = whole[:num_ran], whole[num_ran:]
        num_done = (sum(name[0] == "A" for name in before), sum(name[0] == "B" for name in before))
        assert [name for name in walked(order, num_done=num_done)[0] if " len" in name] == after


def test_one_server_that_goes_on_is_switched_as_seldom_as_it_takes() -> None:
    ran, switches = walked("by round", num_done=(2, 4))  # A has its first round behind it, B two
    assert switches == [0, 1, 0, 1, 0]  # to find out what A and B are, then A A, B B, A
    assert ran[:2] == ["A start", "A warmup-0"]
