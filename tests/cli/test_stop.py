"""The first signal asks, the second one interrupts, and afterwards everything is as before."""

from __future__ import annotations

import signal

import pytest

from deepdraft.cli.stop import stop_signal


def test_the_first_asks_and_the_second_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_signal() as stop:
        assert not stop.is_asked
        signal.raise_signal(signal.SIGINT)
        assert stop.is_asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with stop_signal() as stop:
            signal.raise_signal(signal.SIGTERM)
            assert not stop.is_asked
    finally:
        signal.signal(signal.SIGTERM, before)
