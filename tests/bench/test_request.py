"""One request: whatever becomes of it is a record, and only what passes is tried again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.bench.plan import PlannedTrial
from deepdraft.bench.request import _spread, connected, encoded, is_transient, measured, unsent
from deepdraft.errors import Unreachable
from deepdraft.metrics import output_tokens, prompt_tokens, ttft_s
from deepdraft.records import EventLog, Failure, Limits, Measurement, PromptFacts, RequestTrace
from deepdraft.simulate.spec import Confounds, Fault, Surface

PLANNED = PlannedTrial(trial_id="len900-c1-r0", context_len=900, concurrency=1, repeat_index=0)
LONG = 700


async def ask(session, **settings):
    prompt = await session.maker.make(900)
    return encoded(
        session,
        prompt,
        **{
            "trial_id": "len900-c1-r0",
            "request_index": 0,
            "role": "single",
            "is_warmup": False,
            "max_tokens": 8,
            "num_others": 0,
            **settings,
        },
    )


async def result(session, **settings) -> Measurement:
    asked = await ask(session, **settings)
    return await measured(session, asked, await connected(session))


def test_a_good_one(open_session, plain, least_disturbed) -> None:
    files = count()

    async def main() -> tuple[float, float]:
        async with open_session(plain.url, file=f"{next(files)}.jsonl") as session:
            found = await result(session, request_index=3)
            assert found.failure is None
            assert (found.trial_id, found.request_index, found.attempt) == ("len900-c1-r0", 3, 0)
            assert prompt_tokens(found.trace) == found.prompt.expected_len == 900
            assert output_tokens(found.trace) == found.max_tokens == 8
            (truth,) = (truth for truth in plain.truths(reset=True) if truth.prompt_len == 900)
            assert found.needle_found is None
            sent_at = found.started_at_s + session.started_at
            first_at = sent_at + (ttft_s(found.trace) or 0)
            return truth.received_s - sent_at, first_at - truth.writes[0].time_s

    late_s = least_disturbed(lambda: asyncio.run(main()), max, enough=0.05)
    assert min(late_s) > -1e-3 and max(late_s) < 0.05


FAILURES = (
    (Fault(kind="status", status=503, message="busy"), {}, "HttpStatus", "busy"),
    (Fault(kind="stall"), {"first_token_s": 0.2}, "Stalled", "no answer within 200 ms"),
    (Fault(kind="stall_stream"), {"stall_s": 0.2}, "Stalled", "nothing more came for 200 ms"),
    (Fault(kind="cut"), {}, "StreamEndedEarly", "after 4 tokens"),
    (Fault(kind="error_in_stream", message="no memory"), {}, "ErrorInStream", "no memory"),
    (Fault(kind="empty_stream"), {}, "EmptyStream", "without any text"),
    (Fault(kind="late", delay_s=5.0), {"request_s": 0.2}, "Stalled", "not finished within 200 ms"),
    (Fault(kind="die"), {}, "StreamEndedEarly", "after 4 tokens"),
)
"""Fault, limits, the failure's name, and words of its message."""


def test_failures_are_recorded_and_not_raised(open_session, simulated) -> None:
    faults = [replace(fault, min_prompt_len=LONG, at=(place,)) for place, (fault, *_) in enumerate(FAILURES, start=1)]
    server = simulated(faults=tuple(faults))

    async def main() -> None:
        async with open_session(server.url) as session:
            for _, limits, name, words in FAILURES:
                session.spec = replace(session.spec, limits=Limits(**limits))
                found = await result(session)
                assert found.failure is not None
                assert found.failure.name == name
                assert words in found.failure.message
                assert found.needle_found is None

    asyncio.run(main())


def test_no_connection_is_a_record_too(open_session, plain) -> None:
    async def main() -> None:
        async with open_session(plain.url) as session:
            asked = await ask(session)
            found = unsent(session, asked, Unreachable("can't reach it"), 2, 5.0)
            assert found.failure == Failure(name="Unreachable", message="can't reach it")
            assert (found.attempt, found.scheduled_at_s) == (2, 5.0)
            assert found.prompt == asked.prompt.facts

    asyncio.run(main())


def test_a_cancelled_one_closes_its_connection(open_session, simulated) -> None:
    server = simulated(faults=(Fault(kind="stall", min_prompt_len=LONG),))

    async def main() -> None:
        async with open_session(server.url) as session:
            asked, connection, active = await ask(session), await connected(session), []
            task = asyncio.create_task(measured(session, asked, connection, active=active))
            await asyncio.sleep(0.05)
            assert len(active) == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert active == []
            assert not connection.is_ready

    asyncio.run(main())


def test_a_prompt_that_is_sent_again_on_purpose_claims_no_head(open_session, plain) -> None:
    async def main() -> None:
        async with open_session(plain.url, keep_cache=True) as session:
            assert (await result(session)).prompt.head is None
        async with open_session(plain.url, file="other.jsonl") as session:
            assert (await result(session)).prompt.head

    asyncio.run(main())


def test_a_tokenizer_counts_where_the_server_does_not(open_session, simulated) -> None:
    # Two tokens an event, and a usage that tells only the sum.
    server = simulated(
        confounds=Confounds(continuous_usage="no", token_ids="no", events_per="step"),
        surface=Surface(tokenize=True),
    )

    async def main() -> None:
        async with open_session(server.url) as session:
            assert session.output_tokenizer is not None
            found = await result(session)
            assert found.failure is None
            assert output_tokens(found.trace) == 8

    asyncio.run(main())


def failed(name: str, *, status: int | None = None, has_token: bool = False) -> Measurement:
    events = EventLog(gaps_us=(10,), kinds="t", num_chars=(3,)) if has_token else EventLog()
    return Measurement(
        trial_id="t",
        started_at_s=0.0,
        max_tokens=8,
        prompt=PromptFacts(asked_len=100),
        trace=RequestTrace(http_status=status, events=events),
        failure=Failure(name=name, message="m", http_status=status),
    )


@pytest.mark.parametrize(
    ("measurement", "expected"),
    [
        (failed("HttpStatus", status=429), True),
        (failed("HttpStatus", status=503), True),
        (failed("HttpStatus", status=500), True),
        (failed("HttpStatus", status=408), True),
        (failed("HttpStatus", status=400), False),
        (failed("HttpStatus", status=401), False),
        (failed("HttpStatus", status=413), False),
        (failed("Unreachable"), True),
        (failed("StreamEndedEarly"), True),
        (failed("Stalled"), False),
        (failed("StreamEndedEarly", has_token=True), False),
        (failed("Unreachable", has_token=True), False),
    ],
)
def test_what_may_be_tried_again(measurement, expected) -> None:
    assert is_transient(measurement) is expected
    assert is_transient(replace(measurement, failure=None)) is False


@given(st.integers(0, 5000), st.lists(st.integers(0, 400), min_size=1, max_size=200))
def test_spread_keeps_the_sum_and_the_order_of_size(total, weights) -> None:
    parts = _spread(total, weights)
    assert len(parts) == len(weights)
    assert min(parts) >= 0
    if sum(weights):
        assert sum(parts) == total
