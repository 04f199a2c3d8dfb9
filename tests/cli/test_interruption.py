from __future__ import annotations

import asyncio
import os
import signal

import pytest

from deepdraft.cli.interruption import interruption


def test_the_first_signal_cancels_and_later_ones_do_nothing() -> None:
    async def work() -> str:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.01)
            return "ended in order"
        return "ran on"

    with interruption() as signals:
        assert signals.run(work()) == "ended in order"
        assert signals.is_asked
        os.kill(os.getpid(), signal.SIGINT)  # while the table is printed


def test_before_anything_runs_it_is_an_exception() -> None:
    with interruption() as signals, pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    assert not signals.is_asked


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with interruption():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruption():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_results_and_errors_pass_through() -> None:
    async def give() -> int:
        return 7

    async def fail() -> int:
        raise ValueError("no")

    with interruption() as signals:
        assert signals.run(give()) == 7
        with pytest.raises(ValueError, match="no"):
            signals.run(fail())
