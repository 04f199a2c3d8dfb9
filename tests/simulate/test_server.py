"""Whole requests against the server: the physics by its own log, queue, pool, keys, life and death."""

from __future__ import annotations

import asyncio
import concurrent.futures
import http.client
import json
import socket
import ssl
import statistics
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme

from deepdraft.errors import UsageError
from deepdraft.simulate.physics import prefill_s, step_s
from deepdraft.simulate.server import Server
from deepdraft.simulate.spec import Confounds, Fault, Physics, SimulateSpec, Surface
from deepdraft.simulate.truth import RequestTruth, acceptance_len, tpot_s, truths_from_json, ttft_s


def in_background(call: Any, *args: Any, **fields: Any) -> concurrent.futures.Future[Any]:
    """Run it in a thread."""
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def run() -> None:
        try:
            future.set_result(call(*args, **fields))
        except (OSError, http.client.HTTPException) as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def until(is_so: Any, limit_s: float = 5.0) -> None:
    """Wait for a condition."""
    end_s = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < end_s, "it never came"
        time.sleep(0.005)


# --- physics


def test_the_log_follows_the_law(serve: Any) -> None:
    physics = Physics(
        prefill_a_s=0.03,
        prefill_b_s=2e-5,
        prefill_c_s=1e-8,
        step_d_s=4e-3,
        step_e_s=1e-6,
        committed_len_pattern=(2, 1, 3),
    )
    served = serve(physics=physics)
    served.complete(" a" * 1000, max_tokens=20, ignore_eos=True)
    (truth,) = served.truths()
    assert (truth.prompt_len, truth.cached_len, truth.output_len) == (1000, 0, 20)
    assert truth.prefill_end_s is not None and truth.admitted_s == truth.received_s
    assert truth.prefill_end_s - truth.received_s == pytest.approx(prefill_s(physics, num_uncached=1000))
    # the token of the prefill belongs to no step
    assert 1 + sum(step.committed_len for step in truth.steps) == 20
    assert [step.committed_len for step in truth.steps[:6]] == [2, 1, 3, 2, 1, 3]
    context_len, due_s = 1000, truth.prefill_end_s
    for step in truth.steps:
        assert step.context_len == context_len
        assert step.start_s == due_s
        assert step.end_s - step.start_s == pytest.approx(step_s(physics, context_len=context_len))
        context_len, due_s = context_len + step.committed_len, step.end_s


SCHEDULED = Physics(prefill_a_s=0.05, step_d_s=0.004)


def lateness_s(truth: RequestTruth) -> list[float]:
    """How late each write was by the schedule, which is exact; no write is early."""
    assert truth.prefill_end_s is not None
    due_s = [truth.prefill_end_s, *(step.end_s for step in truth.steps)]
    late_s = [write.time_s - due for write, due in zip(truth.writes, due_s, strict=True)]
    assert min(late_s) >= 0
    assert due_s[0] - truth.received_s == pytest.approx(0.05)
    assert [later - earlier for earlier, later in pairwise(due_s)] == pytest.approx([0.004] * (len(due_s) - 1))
    return late_s


def test_writes_follow_the_schedule(serve: Any, least_disturbed: Any) -> None:
    served = serve(physics=SCHEDULED)

    def measure() -> RequestTruth:
        served.chat(max_tokens=60)
        (truth,) = served.truths(reset=True)
        return truth

    def typical_s(one: RequestTruth) -> float:
        """By the quarter that is least late: where others have the core, each second write may wait for its turn."""
        return statistics.quantiles(lateness_s(one))[0]

    truth = least_disturbed(measure, typical_s, enough=0.001)
    late_s = lateness_s(truth)
    assert typical_s(truth) < 0.003 and min(late_s) < 0.001
    # what a client makes of it differs from the law by the lateness of first and last alone
    assert tpot_s(truth) == pytest.approx(0.004 + (late_s[-1] - late_s[0]) / 59)
    assert ttft_s(truth) == pytest.approx(0.05 + late_s[0])


def test_lateness_is_not_carried_on(serve: Any, least_disturbed: Any) -> None:
    """The server is held up for 100 ms; its last writes are on time again."""
    served = serve(physics=SCHEDULED)

    async def hold_up() -> None:
        while not served.server._engine.running:
            await asyncio.sleep(0)
        time.sleep(0.1)

    def measure() -> list[float]:
        held_up = asyncio.run_coroutine_threadsafe(hold_up(), served.loop)
        assert served.chat(max_tokens=60).is_complete
        held_up.result(10)
        (truth,) = served.truths(reset=True)
        return lateness_s(truth)

    late_s = least_disturbed(measure, lambda late_s: min(late_s[-20:]), enough=0.01)
    assert max(late_s) > 0.04  # of 100 ms the prefill takes 50 at most
    assert min(late_s[-20:]) < 0.01


def test_the_client_sees_no_event_before_the_log_has_it(serve: Any) -> None:
    served = serve()
    answered = served.chat(max_tokens=4)
    (truth,) = served.truths()
    assert truth.status == 200 and truth.finish_reason == "length"
    assert truth.writes[-1].time_s <= truth.end_s <= answered.end_s
    assert answered.headers["x-request-id"] == truth.request_id


def test_a_long_prompt_costs_its_uncached_tokens_only(serve: Any) -> None:
    physics = Physics(prefill_a_s=0.01, prefill_b_s=2e-4, prefill_c_s=1e-8)
    served = serve(physics=physics, confounds=Confounds(prefix_cache=True))
    prompt = " a b c d" * 100
    for suffix in ("", " and more"):
        served.complete(prompt + suffix, max_tokens=2)
    first, second = served.truths()
    assert (first.cached_len, second.cached_len) == (0, 400)
    expected_s = prefill_s(physics, num_uncached=second.prompt_len - 400, num_cached=400)
    assert second.prefill_end_s - second.received_s == pytest.approx(expected_s)


def test_the_acceptance_length_is_what_was_asked(serve: Any) -> None:
    physics = Physics(step_d_s=0.0005, prefill_a_s=0.001, committed_len_probs=(0.2, 0.3, 0.5))
    served = serve(physics=physics)
    served.complete(max_tokens=600)
    (truth,) = served.truths()
    assert acceptance_len(truth) == pytest.approx(2.3, rel=0.1)


def test_noise_drift_and_warm_up(serve: Any) -> None:
    confounds = Confounds(slow_first_requests=1, slow_first_s=0.1, drift_frac=0.5)
    served = serve(physics=Physics(prefill_a_s=0.02, step_d_s=0.002), confounds=confounds)
    for _ in range(3):
        served.complete(max_tokens=3)
    prefills = [truth.prefill_end_s - truth.received_s for truth in served.truths()]
    steps = [truth.steps[0].end_s - truth.steps[0].start_s for truth in served.truths()]
    assert prefills == pytest.approx([0.12, 0.03, 0.04])
    assert steps == pytest.approx([0.002, 0.003, 0.004])


# --- several requests


def test_requests_beyond_the_slots_wait_in_order(serve: Any) -> None:
    served = serve(dialect="vllm", physics=Physics(prefill_a_s=0.5, step_d_s=0.04, max_running=2))
    engine = served.server._engine
    requests: list[Any] = []
    for index, max_tokens in enumerate((3, 20, 3, 3)):
        requests.append(in_background(served.complete, f"prompt {index}", max_tokens=max_tokens))
        until(lambda: len(engine.running) + engine.num_waiting == len(requests))
    assert _metric(served, "vllm:num_requests_running") == 2
    assert _metric(served, "vllm:num_requests_waiting") == 2
    for request in requests:
        assert request.result(10).status == 200
    first, second, third, fourth = sorted(served.truths(), key=lambda truth: truth.ordinal)
    assert first.admitted_s == first.received_s and second.admitted_s == second.received_s
    assert third.admitted_s > third.received_s and fourth.admitted_s > fourth.received_s
    # the third starts when the first has ended, which is long before the second does; the fourth when another has
    assert first.steps[-1].end_s <= third.admitted_s < second.steps[-1].end_s
    assert fourth.admitted_s >= min(second.steps[-1].end_s, third.steps[-1].end_s)


def test_the_pool_makes_requests_wait(serve: Any) -> None:
    served = serve(physics=Physics(prefill_a_s=0.3, step_d_s=0.005, kv_pool_tokens=1000))
    first = in_background(served.complete, " a" * 600, max_tokens=20)
    until(lambda: served.server._engine.running)
    second = served.complete(" b" * 600, max_tokens=20)
    assert first.result(10).status == second.status == 200
    early, late = sorted(served.truths(), key=lambda truth: truth.ordinal)
    assert early.admitted_s == early.received_s
    assert late.admitted_s >= early.steps[-1].end_s


def test_interference_slows_steps_of_several_requests(serve: Any) -> None:
    served = serve(physics=Physics(prefill_a_s=0.3, step_d_s=0.005, interference=1.0))
    requests = [in_background(served.complete, f"prompt {index}", max_tokens=20) for index in range(2)]
    for request in requests:
        request.result(10)
    both = [step.end_s - step.start_s for truth in served.truths() for step in truth.steps]
    assert max(both) == pytest.approx(0.010)


def test_background_load_is_seen_and_felt(serve: Any) -> None:
    confounds = Confounds(background_requests=3, background_slowdown=2.0, background_tok_s=1000.0)
    served = serve(dialect="vllm", physics=Physics(prefill_a_s=0.02), confounds=confounds)
    served.complete(max_tokens=2)
    (truth,) = served.truths()
    assert truth.prefill_end_s - truth.received_s == pytest.approx(0.04)
    first, second = (_metric(served, "vllm:generation_tokens_total") for _ in range(2))
    assert _metric(served, "vllm:num_requests_running") == 3
    time.sleep(0.05)
    assert _metric(served, "vllm:generation_tokens_total") > second >= first


def _metric(served: Any, name: str) -> float:
    for line in served.get("/metrics").text.splitlines():
        if line.startswith((name + "{", name + " ")):
            return float(line.rpartition(" ")[2])
    raise AssertionError(f"no metric {name}")


def test_a_client_that_leaves_frees_its_slot(serve: Any) -> None:
    served = serve(physics=Physics(prefill_a_s=30.0, max_running=1))
    connection = served.connect()
    body = json.dumps({"prompt": "x", "stream": True, "max_tokens": 4})
    connection.request("POST", "/v1/completions", body)
    until(lambda: served.server._engine.running)
    connection.sock.close()
    connection.close()
    until(lambda: not served.server._engine.running)
    (truth,) = served.truths()
    assert truth.is_cancelled and truth.output_len == 0


# --- HTTP


def test_keep_alive_and_close(serve: Any) -> None:
    served = serve(physics=Physics(prefill_a_s=0.001, step_d_s=0.001))
    connection = served.connect()
    for _ in range(3):
        assert served.chat(connection=connection).status == 200
    port = connection.sock.getsockname()[1]
    served.chat(connection=connection)
    assert connection.sock.getsockname()[1] == port
    assert served.truths()[0].num_connections == 1
    closed = served.chat(headers={"Connection": "close"})
    assert closed.status == 200 and closed.headers["connection"] == "close"
    connection.close()


def test_idle_connections_are_closed(serve: Any) -> None:
    quick = Physics(prefill_a_s=0.3, step_d_s=0.001)
    served = serve(physics=quick, surface=Surface(keep_alive_s=0.1))
    connection = served.connect()
    # busy for longer than the limit: not idle
    assert served.chat(connection=connection).is_complete
    assert connection.sock.recv(1) == b""
    connection.close()


def test_pipelined_requests_are_answered_in_order(serve: Any) -> None:
    served = serve(physics=Physics(prefill_a_s=0.01, step_d_s=0.001))
    address = urlsplit(served.url)
    with socket.create_connection((address.hostname, address.port), timeout=10) as client:
        body = json.dumps({"prompt": "x", "max_tokens": 2}).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
        client.sendall(head + body + b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        received = b"".join(iter(lambda: client.recv(65536), b""))
    assert received.count(b"HTTP/1.1 200 OK") == 2
    assert received.index(b"text_completion") < received.index(b'"object":"list"')


def test_bytes_that_are_no_http_get_a_400(serve: Any) -> None:
    address = urlsplit(serve().url)
    with socket.create_connection((address.hostname, address.port), timeout=10) as client:
        client.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 400 ")


def test_base_path(serve: Any) -> None:
    served = serve(surface=Surface(base_path="/prefix"))
    assert served.url.endswith("/prefix")
    assert served.chat().status == 200
    assert served.get("/v1/models").status == 200
    assert served.truths()[0].route == "/v1/chat/completions"
    connection = served.connect()
    connection.request("GET", "/v1/models")
    assert connection.getresponse().status == 404


def test_bodies_that_cant_be_read_are_a_400(serve: Any) -> None:
    served = serve()
    for body in ({"messages": []}, {"messages": "x"}, {"prompt": "x"}, [1]):
        assert served.send("POST", "/v1/chat/completions", body).status == 400
    for body in ({"prompt": ""}, {"prompt": {"a": 1}}, {"prompt": "x", "max_tokens": 0}):
        assert served.send("POST", "/v1/completions", body).status == 400
    assert [truth.status for truth in served.truths()] == [400] * 7


@pytest.mark.parametrize("dialect", ["openai", "sglang", "vllm", "llamacpp", "transformers"])
def test_api_key(serve: Any, dialect: str) -> None:
    served = serve(dialect=dialect, surface=Surface(api_key="secret"))
    assert served.get("/health").status == 200
    for key in (None, "wrong"):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        refused = served.chat(headers=headers)
        assert refused.status == 401
        assert refused.json
    assert served.chat(headers={"Authorization": "Bearer secret"}).status == 200


def test_tls(serve: Any, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    served = serve(surface=Surface(certfile=str(tmp_path / "server.pem")))
    assert served.url.startswith("https://127.0.0.1:")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    port = urlsplit(served.url).port
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=10)
    connection.request("GET", "/v1/models")
    assert connection.getresponse().status == 200
    connection.close()


def test_an_address_in_use_is_a_usage_error(serve: Any) -> None:
    port = urlsplit(serve().url).port
    with pytest.raises(UsageError, match="can't listen"):
        asyncio.run(Server(SimulateSpec(port=port or 0)).start())


# --- life


def test_loading_ends(serve: Any) -> None:
    served = serve(dialect="llamacpp", confounds=Confounds(loading_s=0.6))
    loading = served.get("/health")
    assert loading.status == 503
    assert loading.json["error"]["message"] == "Loading model"
    assert served.chat().status == 503
    until(lambda: served.get("/health").status == 200)
    assert served.chat().status == 200


def test_dies_in_the_third_request_and_comes_back(serve: Any) -> None:
    fault = Fault(kind="die", at=(3,), after_tokens=4, restart_after_s=0.3)
    served = serve(dialect="vllm", physics=Physics(prefill_a_s=0.01, step_d_s=0.01), faults=(fault,))
    assert served.chat().is_complete and served.chat().is_complete
    assert not served.chat(max_tokens=20).is_complete
    with pytest.raises(OSError):
        served.chat()

    def is_back() -> bool:
        try:
            return bool(served.chat().status == 200)
        except OSError:
            return False

    until(is_back)
    # counters begin anew: only what came after the restart is in them
    assert _metric(served, "vllm:generation_tokens_total") == 8 * (len(served.truths()) - 3)
    truths = served.truths()
    assert [truth.fault for truth in truths[:3]] == [None, None, "die"]
    assert truths[2].writes[-1].num_tokens == 4


def test_truth_can_be_reset(serve: Any) -> None:
    served = serve(physics=Physics(prefill_a_s=0.001, step_d_s=0.001))
    served.chat()
    assert len(served.truths(reset=True)) == 1
    assert served.truths() == []
    assert truths_from_json(b"[]") == []
