"""The client's cost an event: every load gives a case, what is read is what was sent, a stop keeps what is whole."""

from __future__ import annotations

import pytest

from deepdraft.errors import DeepdraftError
from deepdraft.selftest.client_cost import ClientSettings, client_cases
from deepdraft.selftest.raw_reader import Parsing, Receiving, read_streams
from deepdraft.simulate.process import running
from deepdraft.simulate.spec import Fault, Physics, SimulateSpec
from deepdraft.transport.endpoint import endpoint

BODY = b'{"model":"sim","messages":[{"role":"user","content":"x"}],"max_tokens":12,"stream":true}'
QUICK = Physics(prefill_a_s=0.002, step_d_s=0.002)
PATH = "/v1/chat/completions"


def test_a_case_for_each_load() -> None:
    told: list[str] = []
    settings = ClientSettings(stream_counts=(1, 3), num_repeats=1, leg_s=0.1)
    cases = list(client_cases(settings, is_asked_to_stop=lambda: False, report=told.append))
    assert [case.facts["num_streams"] for case in cases] == [1, 3]
    for case in cases:
        (repeat,) = case.repeats
        assert repeat.seconds > 0
        assert set(repeat.peers_s) == {"httptools"}
        assert set(repeat.rates) == set(case.work) == {"receive"}
    assert len(told) == 2


def test_a_stop_before_the_first_repeat_leaves_no_case() -> None:
    told: list[str] = []
    settings = ClientSettings(stream_counts=(1, 8), leg_s=0.1)
    assert list(client_cases(settings, is_asked_to_stop=lambda: bool(told), report=told.append)) == []
    assert len(told) == 1


def test_the_raw_readers_read_everything() -> None:
    with running(SimulateSpec(physics=QUICK)) as server:
        at = endpoint(server.url)
        num_events = read_streams(at, PATH, [BODY] * 2, Parsing)
        assert 2 * 12 <= num_events <= 2 * 15  # the role, the end and the usage may have events of their own
        assert read_streams(at, PATH, [BODY] * 2, Receiving) >= 2


def test_an_answer_that_is_cut_short_is_told() -> None:
    with running(SimulateSpec(physics=QUICK, faults=(Fault(kind="cut", after_tokens=4),))) as server:
        for reader in (Parsing, Receiving):
            with pytest.raises(DeepdraftError, match="cut an answer short"):
                read_streams(endpoint(server.url), PATH, [BODY], reader)
