"""`deepdraft serve` as a command: flags, what it says, how it ends. Routes are tested in tests/infer/server."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

KEY = "sk-vErYsEcReT-0123456789"
SMALL = ("--port", "0", "--max-context-len", "4k", "--kv-pool-tokens", "8k", "--num-threads", "1")
LONG = {"prompt": "x", "max_tokens": 3000, "temperature": 0, "ignore_eos": True, "stream": True}


@dataclass
class Served:
    """A server in a process of its own that is up."""

    started: Any
    url: str

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)

    def ask(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        with contextlib.closing(self.connection()) as connection:
            connection.request("GET" if body is None else "POST", path, body and json.dumps(body), headers or {})
            response = connection.getresponse()
            return response.status, response.read()


Serve = Callable[..., Served]


@pytest.fixture
def serve(start: Any, tiny_model: Path) -> Serve:
    """serve("--api-key", "k", env={...}): wait for its ready line."""

    def run(*words: object, **options: Any) -> Served:
        started = start("serve", "--model", tiny_model, *SMALL, *words, **options)
        line = started.child.stdout.readline()
        assert line.startswith("url http://127.0.0.1:"), (line, started.err)
        return Served(started, line.removeprefix("url ").strip())

    return run


def open_stream(served: Served) -> http.client.HTTPResponse:
    """A long answer that has begun."""
    connection = served.connection()
    connection.request("POST", "/v1/completions", json.dumps(LONG))
    response = connection.getresponse()
    assert response.readline().startswith(b"data: ")
    return response


def test_it_serves_until_told_to_stop_and_shows_its_key_nowhere(serve) -> None:
    served = serve("--served-model-name", "toy", "--log-level", "debug", env={"DEEPDRAFT_API_KEY": KEY})
    letter = {"authorization": f"Bearer {KEY}"}
    assert served.ask("/v1/models")[0] == 401
    assert served.ask("/v1/models", headers={"authorization": f"Bearer {KEY}x"})[0] == 401
    assert json.loads(served.ask("/v1/models", headers=letter)[1])["data"][0]["id"] == "toy"
    status, body = served.ask("/server_info", headers=letter)
    assert status == 200
    assert KEY.encode() not in body
    served.started.signal(signal.SIGTERM)
    ran = served.started.end()
    assert ran.code == 0
    assert ran.out == ""
    first, second, third, *log = ran.err.splitlines()
    assert "toy (llama)" in first and "float32" in first
    assert "context limit 4000 tokens; KV pool 8000 tokens, 500 pages of 16" in second
    predicted = second.rpartition("predicted ")[2].removesuffix(")")
    assert f" {predicted} bytes" in second
    assert re.search(r"attention (native|torch), threads 1,", third)
    assert f"listening on {served.url}" in log
    assert any("GET /v1/models" in line for line in log)  # debug: the access log is on
    assert KEY not in ran.err


def test_a_second_signal_ends_it_at_once(serve) -> None:
    served = serve("--drain-timeout", "60")
    stream = open_stream(served)
    served.started.signal(signal.SIGTERM)
    served.started.wait_until_said("draining 1 requests")
    served.started.signal(signal.SIGTERM)
    ran = served.started.end()
    assert ran.code == 128 + signal.SIGTERM
    assert "ended at once" in ran.err
    stream.close()


def test_the_drain_timeout_ends_what_takes_too_long(serve) -> None:
    served = serve("--drain-timeout", "0.2")
    stream = open_stream(served)
    served.started.signal(signal.SIGINT)
    content = stream.read()
    assert b'"code":"draining"' in content
    ran = served.started.end()
    assert ran.code == 0
    assert "the drain timeout is over" in ran.err


def test_it_ends_with_its_parent(tiny_model) -> None:
    command = [sys.executable, "-m", "deepdraft", "serve", "--model", str(tiny_model), *SMALL, "--parent-stdin"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdin is not None and child.stdout is not None
    with child, overdue(child):
        assert child.stdout.readline().startswith(b"url ")
        child.stdin.close()
        assert child.wait(30) == 0


@contextlib.contextmanager
def overdue(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill a child that hangs."""
    timer = threading.Timer(60, child.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def test_an_engine_that_dies_ends_the_command_with_an_error(tiny_model) -> None:
    launcher = (
        "from deepdraft.infer.engine import Engine\n"
        "def step(self):\n    raise ValueError('a fault')\n"
        "Engine.step = step\n"
        "import sys\nfrom deepdraft.cli.main import main\nsys.exit(main())"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", launcher, "serve", "--model", str(tiny_model), *SMALL],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None and child.stderr is not None
    with child, overdue(child):
        url = child.stdout.readline().removeprefix("url ").strip()
        status, body = Served(None, url).ask("/v1/completions", {"prompt": "x"})
        assert (status, json.loads(body)["error"]["code"]) == (503, "engine_died")
        assert Served(None, url).ask("/health")[0] == 503
        err = child.stderr.read()
        assert child.wait(30) == 4
    assert "deepdraft: the engine died: ValueError: a fault" in err


def test_a_port_that_is_taken_is_told_before_the_model_is_loaded(deepdraft, plain) -> None:
    ran = deepdraft("serve", "--model", "/no/such/model", "--port", urlsplit(plain.url).port)
    assert ran.code == 2
    assert "can't listen on 127.0.0.1" in ran.said[0]
    assert ran.said[1] == "choose another --port"


def test_a_missing_extra_is_named(deepdraft) -> None:
    ran = deepdraft("serve", launcher="import sys\nsys.modules['torch'] = None\nsys.modules['uvicorn'] = None")
    assert ran.code == 2
    assert ran.said[0] == "serving needs packages that are not installed: torch, uvicorn"
    assert 'pip install "deepdraft[serve]"' in ran.said[1]
    assert "CPU" in ran.said[1]


def test_help_loads_neither_torch_nor_a_web_server(deepdraft) -> None:
    launcher = (
        "import atexit, sys\n"
        "heavy = ('torch', 'numpy', 'uvicorn', 'starlette', 'tokenizers', 'prometheus_client', 'jinja2')\n"
        "atexit.register(lambda: print([name for name in heavy if name in sys.modules]))"
    )
    ran = deepdraft("serve", "--help", launcher=launcher)
    assert ran.code == 0
    assert ran.out.splitlines()[-1] == "[]"
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "--parent-stdin" not in ran.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "/no/such/model"), "no model at /no/such/model"),
        (("--port", "70000"), "not a whole number from 0 to 65535"),
        (("--kv-pool-tokens", "many"), "not a number of tokens"),
        (("--kv-pool-tokens", "1k", "--mem-fraction", "0.5"), "stated twice"),
        (("--mem-fraction", "1.5"), "above 0 and at most 1"),
        (("--page-size", "0"), "not a whole number of 1 or more"),
        (("--drain-timeout", "-1"), "not a number of seconds"),
        (("--dtype", "int8"), "invalid choice"),
        (("--host", "no.such.host.invalid"), "can't listen on no.such.host.invalid"),
        (("--tree-budget", "4"), "--tree-budget is for drafting, and there is no drafter"),
        (("--drafter", "none", "--simulate-acceptance-len", "2"), "--simulate-acceptance-len is for drafting"),
        (("--drafter", "ngram", "--tree-budget", "0"), "not a whole number of 1 or more: '0'"),
        (("--drafter", "ngram", "--tree-top-k", "0"), "not a whole number of 1 or more: '0'"),
        (("--drafter", "ngram", "--draft-window", "512"), "--draft-window has no effect on prompt lookup"),
        (("--drafter", "ngram", "--tree-top-k", "4"), "prompt lookup drafts one token a depth"),
        (("--drafter", "ngram", "--simulate-acceptance-len", "0.5"), "each step commits a token"),
    ],
)
def test_flags_that_can_not_be_used(called, words, message) -> None:
    ran = called("serve", "--port", "0", *words)
    assert ran.code == 2
    assert message in ran.said[0]


def test_a_context_beyond_the_model_is_refused(called, tiny_model) -> None:
    ran = called("serve", "--port", "0", "--model", tiny_model, "--max-context-len", "1M")
    assert ran.code == 2
    assert "--max-context-len 1000000" in ran.said[0]


@pytest.mark.parametrize(
    "page", ["docs/guides/serve.md", "docs/guides/draft.md", "deploy/README.md", "deploy/deepdraft.service"]
)
def test_the_pages_name_flags_that_exist(called, page) -> None:
    text = (Path(__file__).parents[2] / page).read_text()
    known = set(re.findall(r"--[a-z-]+", called("serve", "--help").out + called("sweep", "--help").out))
    known |= set(re.findall(r"--[a-z-]+", called("compare", "--help").out + called("report", "--help").out))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - {"--now", "--index-url", "--user"}
    assert named
    assert named <= known
