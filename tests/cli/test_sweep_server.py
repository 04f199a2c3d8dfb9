"""A server that can't be used: exit code 3, one clear line, and no results file."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepdraft.simulate.process import RunningServer, running
from deepdraft.simulate.spec import Confounds, Fault, Physics, SimulateSpec, Surface

HTML = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>hello</body></html>"


@pytest.fixture
def banner_port() -> Iterator[int]:
    """Speaks first, and not HTTP, as SSH and mail servers do."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"SSH-2.0-OpenSSH_9.7\r\n")

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]


def swept(run, url, *flags):
    return run("sweep", url, "--context-len", "200", "--out", "out.jsonl", *flags)


@pytest.mark.parametrize(
    ("url", "message", "hint"),
    [
        ("ftp://127.0.0.1", "not a web address", "http://"),
        ("http://", "no host in the URL", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:99999", "not a URL", "for example"),
        ("http://user:hunter2@127.0.0.1:8000", "user name or password can't stand in the URL", "header"),
    ],
)
def test_an_address_that_is_none(called, tmp_path: Path, url, message, hint) -> None:
    ran = swept(called, url)
    assert ran.code == 2
    assert message in ran.said[0]
    assert hint in (ran.said[1] or "")
    assert "hunter2" not in ran.out + ran.err
    assert list(tmp_path.iterdir()) == []


def test_nothing_listens(deepdraft, port, tmp_path: Path) -> None:
    ran = swept(deepdraft, f"http://127.0.0.1:{port}")
    assert ran.code == 3
    assert ran.said == (
        f"can't reach 127.0.0.1:{port}: Connection refused",
        "nothing listens there: is the server up, and is the port right?",
    )
    assert ran.out == ""
    assert list(tmp_path.iterdir()) == []


def test_not_http(called, banner_port, tmp_path: Path) -> None:
    ran = swept(called, f"http://127.0.0.1:{banner_port}")
    assert ran.code == 3
    assert "not HTTP" in ran.said[0]
    assert not (tmp_path / "out.jsonl").exists()


def test_a_path_that_is_no_api(called, plain: RunningServer) -> None:
    ran = swept(called, f"{plain.url}/somewhere/else")
    assert ran.code == 3
    assert "/somewhere/else" in ran.said[0]
    assert "404" in ran.said[0]
    assert "before /v1" in (ran.said[1] or "")


@pytest.mark.parametrize("path", ["", "/v1", "/v1/"])
def test_a_web_page_instead_of_json(called, loopback, path) -> None:
    url = loopback(lambda request: (200, "text/html", HTML))
    ran = swept(called, url + path)
    assert ran.code == 3
    assert "HTML page titled 'Sign in'" in ran.said[0]
    assert "before /v1" in (ran.said[1] or "")


def test_a_web_page_with_an_error_status(called, loopback) -> None:
    ran = swept(called, loopback(lambda request: (404, "text/html", HTML)))
    assert ran.code == 3
    assert "HTML page" in ran.said[0]


def test_404_to_everything(deepdraft, loopback, tmp_path: Path) -> None:
    ran = swept(deepdraft, loopback(lambda request: (404, "text/plain", b"nothing here")))
    assert ran.code == 3
    assert "404" in ran.said[0]
    assert ran.said[1]
    assert not (tmp_path / "out.jsonl").exists()


def test_json_that_is_no_api(called, loopback) -> None:
    ran = swept(called, loopback(lambda request: (200, "application/json", b'["a", "b"]')))
    assert ran.code == 3
    assert "does not answer with a list of models" in ran.said[0]


@pytest.fixture(scope="module")
def locked() -> Iterator[RunningServer]:
    physics = Physics(prefill_a_s=0.01, step_d_s=0.001)
    with running(
        SimulateSpec(dialect="vllm", physics=physics, surface=Surface(api_key="k-right-0123456789"))
    ) as server:
        yield server


class TestKey:
    def test_none(self, deepdraft, locked) -> None:
        ran = swept(deepdraft, locked.url)
        assert ran.code == 3
        assert "401" in ran.said[0]
        assert "--api-key" in (ran.said[1] or "")

    def test_wrong(self, called, locked) -> None:
        ran = swept(called, locked.url, "--api-key", "k-wrong-0123456789")
        assert ran.code == 3
        assert "401" in ran.said[0]
        assert "k-wrong" not in ran.out + ran.err

    @pytest.mark.parametrize("by", ["flag", "variable", "header"])
    def test_right(self, deepdraft, locked, brief, tmp_path: Path, by) -> None:
        key = "k-right-0123456789"
        flags = {
            "flag": ("--api-key", key),
            "variable": (),
            "header": ("--header", f"Authorization: Bearer {key}"),
        }[by]
        env = {"OPENAI_API_KEY": key} if by == "variable" else {}
        ran = deepdraft("sweep", locked.url, "--context-len", "200", "--out", "out.jsonl", *brief, *flags, env=env)
        assert ran.code == 0, ran.err
        assert key not in ran.out + ran.err + (tmp_path / "out.jsonl").read_text()


def test_a_server_that_still_loads_is_waited_for(deepdraft, simulated, brief) -> None:
    server = simulated(dialect="llamacpp", confounds=Confounds(loading_s=0.8))
    ran = swept(deepdraft, server.url, *brief)
    assert ran.code == 0, ran.err
    assert "not ready: HTTP 503" in ran.err
    assert "Loading model" in ran.err
    assert "waiting up to 15 min" in ran.err


def test_a_server_that_loads_for_ever_is_given_up(called, simulated, tmp_path: Path) -> None:
    server = simulated(dialect="llamacpp", confounds=Confounds(loading_s=60.0))
    ran = swept(called, server.url, "--wait-server", "1")
    assert ran.code == 3
    assert "Loading model" in ran.said[0]
    assert not (tmp_path / "out.jsonl").exists()


def test_a_server_that_is_not_there_yet_is_waited_for_when_asked(start, simulated, port, brief, tmp_path) -> None:
    sweep = start(
        "sweep",
        f"http://127.0.0.1:{port}",
        "--context-len",
        "200",
        *brief,
        "--wait-server",
        "30",
        "--out",
        "out.jsonl",
    )
    sweep.wait_until_said("Connection refused; waiting up to 30 s")
    simulated(port=port)
    ran = sweep.end()
    assert ran.code == 0, ran.err
    assert (tmp_path / "out.jsonl").exists()


def test_a_model_that_is_not_there(deepdraft, simulated, tmp_path: Path) -> None:
    server = simulated(
        dialect="openai",
        faults=(Fault(kind="status", status=404, message="The model `nope` does not exist."),),
    )
    ran = swept(deepdraft, server.url, "--model", "nope")
    assert ran.code == 3
    assert "The model `nope` does not exist." in ran.said[0]
    assert "--model" in (ran.said[1] or "")
    assert not (tmp_path / "out.jsonl").exists()


def test_several_models_to_choose_from(called, loopback) -> None:
    models = json.dumps({"object": "list", "data": [{"id": "small"}, {"id": "large"}]}).encode()

    def answer(request: http.server.BaseHTTPRequestHandler):
        if request.path == "/v1/models":
            return 200, "application/json", models
        return 404, "application/json", b"{}"

    ran = swept(called, loopback(answer))
    assert ran.code == 2
    assert "2 models: small, large" in ran.said[0]
    assert "--model" in (ran.said[1] or "")


def test_an_endpoint_that_is_not_there(called, plain: RunningServer, simulated, tmp_path: Path) -> None:
    ran = swept(called, plain.url, "--endpoint", "native")
    assert ran.code == 2
    assert "native" in ran.said[0]
    assert "chat, completions" in (ran.said[1] or "")
    chat_only = simulated(dialect="transformers")
    ran = swept(called, chat_only.url, "--endpoint", "native")
    assert ran.code == 2
    assert list(tmp_path.iterdir()) == []


def test_ids_on_a_server_that_does_not_tokenize(called, simulated, tmp_path: Path) -> None:
    server = simulated(surface=Surface(tokenize=False))
    ran = swept(called, server.url, "--prompt-form", "ids")
    assert ran.code == 2
    assert "token ids" in ran.said[0]
    assert "--prompt-form text" in (ran.said[1] or "")
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_fails_every_request_can_not_be_used(called, simulated, tmp_path: Path) -> None:
    server = simulated(faults=(Fault(kind="status", status=500, message="CUDA out of memory"),))
    ran = swept(called, server.url)
    assert ran.code == 3
    assert "CUDA out of memory" in ran.said[0]
    assert list(tmp_path.iterdir()) == []


def test_counting_that_fails_can_not_be_used_either(called, simulated, tmp_path: Path) -> None:
    # The first requests settle the routes; from the sixth on they calibrate.
    server = simulated(
        dialect="openai",
        surface=Surface(tokenize=False),
        faults=(Fault(kind="status", status=500, at=tuple(range(6, 400)), message="out of memory"),),
    )
    ran = swept(called, server.url)
    assert ran.code == 3
    assert "tokens can't be counted here" in ran.said[0]
    assert "out of memory" in ran.said[0]
    assert list(tmp_path.iterdir()) == []
