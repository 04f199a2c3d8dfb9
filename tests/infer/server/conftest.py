"""Real servers on the loopback, in this process: uvicorn in a thread, a real engine behind it.

Two models. `tiny_llama` (of the conftest above) has random weights. The reciter has weights set by hand, so that each
byte decides the next one: what it will say is known beforehand.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch
from safetensors.torch import save_file

from deepdraft.infer.server.load import load_service
from deepdraft.infer.server.run import Server, listening_socket, url_of
from deepdraft.infer.server.service import Service
from deepdraft.infer.server.settings import ServeSettings

RECITED = "Schöne 漢字🚀"
"""Said again and again; every byte occurs once in it."""
EOS = 256
LIMIT_S = 30.0
TEMPLATE = (
    "{% if tools %}[{{ tools | length }}]{% endif %}"
    "{% for message in messages %}{% if message.role == 'bad' %}{{ raise_exception('no such role') }}{% endif %}"
    "{{ message.role }}:{{ message.content }};{% endfor %}{% if add_generation_prompt %}>{% endif %}"
)


@dataclass
class Reply:
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        assert self.json.keys() == {"error"}
        error: dict[str, Any] = self.json["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        return error

    @property
    def events(self) -> list[Any]:
        """The JSON of each event of a stream; [DONE] as it is."""
        assert self.headers["content-type"] == "text/event-stream; charset=utf-8"
        blocks = self.body.decode().split("\n\n")
        assert blocks.pop() == ""
        assert all(block.startswith("data: ") for block in blocks)
        contents = [block.removeprefix("data: ") for block in blocks]
        return [content if content == "[DONE]" else json.loads(content) for content in contents]


@dataclass
class Running:
    """A server, and the means to ask it."""

    url: str
    service: Service
    server: Server
    loop: asyncio.AbstractEventLoop

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname is not None and parts.port is not None
        return parts.hostname, parts.port

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        limit_s: float = LIMIT_S,
    ) -> Reply:
        """One request on a connection of its own; a body that is no bytes is sent as JSON."""
        connection = http.client.HTTPConnection(*self.address, timeout=limit_s)
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, path, content, headers or {})
            response = connection.getresponse()
            return Reply(
                response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
            )
        finally:
            connection.close()

    def get(self, path: str, **options: Any) -> Reply:
        return self.ask("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Reply:
        return self.ask("POST", path, body, **options)

    def complete(self, prompt: Any, **fields: Any) -> Reply:
        """POST /v1/completions, greedy and past EOS where nothing else is said."""
        return self.post("/v1/completions", {"prompt": prompt, "temperature": 0, "ignore_eos": True, **fields})

    def chat(self, *contents: Any, **fields: Any) -> Reply:
        """POST /v1/chat/completions with user messages."""
        messages = [{"role": "user", "content": content} for content in contents]
        return self.post("/v1/chat/completions", {"messages": messages, "temperature": 0, **fields})

    def send(self, path: str, body: Any) -> socket.socket:
        """Send a request and leave the answer to the caller."""
        connection = socket.create_connection(self.address, LIMIT_S)
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {len(content)}\r\n\r\n"
        connection.sendall(head.encode() + content)
        return connection

    def metric(self, name: str) -> float:
        """One sample of /metrics, by its name and labels as they stand there."""
        for line in self.get("/metrics").body.decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"no {name} in /metrics")

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + LIMIT_S
        while not is_so():
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def wait_until_idle(self) -> None:
        """Wait until no request is open and every page is free or cached."""
        self.wait_until(lambda: self.get("/server_info").json["state"]["num_open"] == 0)
        self.wait_until(lambda: self.metric("deepdraft:num_requests_running") == 0)
        assert self.metric('deepdraft:kv_pool_pages{state="held"}') == 0


Serving = Callable[..., contextlib.AbstractContextManager[Running]]


@contextlib.contextmanager
def run_server(
    service: Service, settings: ServeSettings, *, send_buffer_bytes: int | None = None
) -> Iterator[Running]:
    """Serve in a thread until the block is left. A small send buffer makes a client that doesn't read felt soon."""
    is_ready = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []
    with listening_socket("127.0.0.1", 0) as bound:
        url = url_of(bound)
        if send_buffer_bytes is not None:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        server = Server(service, settings, is_ready.set)

        async def run() -> None:
            loops.append(asyncio.get_running_loop())
            await server.serve([bound])

        thread = threading.Thread(target=lambda: asyncio.run(run()), name="server")
        thread.start()
        try:
            assert is_ready.wait(LIMIT_S)
            yield Running(url, service, server, loops[0])
        finally:
            server.should_exit = True
            thread.join(LIMIT_S)
            assert not thread.is_alive()


def settings_of(folder: Path, **values: Any) -> ServeSettings:
    """A small server; the engine's laws are checked after every step."""
    defaults = {
        "model": str(folder),
        "max_context_len": 256,
        "kv_pool_tokens": 512,
        "page_size": 4,
        "chunk_len": 16,
        "num_threads": 1,
        "is_checked": True,
        "drain_timeout_s": 5.0,
    }
    return ServeSettings(**{**defaults, **values})


@contextlib.contextmanager
def _serving(folder: Path, *, send_buffer_bytes: int | None = None, **values: Any) -> Iterator[Running]:
    settings = settings_of(folder, **values)
    with run_server(load_service(settings), settings, send_buffer_bytes=send_buffer_bytes) as running:
        yield running


@pytest.fixture(scope="session")
def serving() -> Serving:
    """with serving(folder, api_key="secret") as server: ..."""
    return _serving


@pytest.fixture(scope="session")
def random_folder(tiny_llama: Any) -> Path:
    """The random model's folder."""
    folder: Path = tiny_llama.folder
    return folder


@pytest.fixture(scope="session")
def reciter_folder(random_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The random model with other weights, and a chat template."""
    folder = tmp_path_factory.mktemp("reciter")
    for name in ("tokenizer.json", "config.json"):
        shutil.copy(random_folder / name, folder / name)
    config = json.loads((folder / "config.json").read_text())
    size = config["vocab_size"]
    (folder / "config.json").write_text(json.dumps({**config, "hidden_size": size}))
    stated = json.loads((random_folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**stated, "chat_template": TEMPLATE}))
    weights = {
        f"model.layers.{layer}.{name}": torch.zeros(shape)
        for layer in range(config["num_hidden_layers"])
        for name, shape in _silent_layer(size, config).items()
    }
    weights["model.embed_tokens.weight"] = torch.eye(size)
    weights["model.norm.weight"] = torch.ones(size)
    weights["lm_head.weight"] = _successors(size)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _silent_layer(size: int, config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Tensors of a layer; all zero, it adds nothing."""
    query = config["num_attention_heads"] * config["head_dim"]
    key = config["num_key_value_heads"] * config["head_dim"]
    inner = config["intermediate_size"]
    attention = {"q_proj": (query, size), "k_proj": (key, size), "v_proj": (key, size), "o_proj": (size, query)}
    mlp = {"gate_proj": (inner, size), "up_proj": (inner, size), "down_proj": (size, inner)}
    return {
        **{f"self_attn.{name}.weight": shape for name, shape in attention.items()},
        **{f"mlp.{name}.weight": shape for name, shape in mlp.items()},
        "input_layernorm.weight": (size,),
        "post_attention_layernorm.weight": (size,),
    }


def _successors(size: int) -> torch.Tensor:
    """The output matrix: row t's column is 1 where t follows. Every other byte begins the recital; "." is followed by
    "!", and that by EOS."""
    recited = RECITED.encode()
    assert len(set(recited)) == len(recited)
    following = dict.fromkeys(range(size), recited[0])
    following |= dict(zip(recited, recited[1:] + recited[:1], strict=True))
    following |= {ord("."): ord("!"), ord("!"): EOS}
    matrix = torch.zeros(size, size)
    for token_id, follower in following.items():
        matrix[follower, token_id] = 1.0
    return matrix


@pytest.fixture(scope="session")
def reciter(reciter_folder: Path) -> Iterator[Running]:
    """A server of the reciter, shared by all tests that leave it as it was."""
    with _serving(reciter_folder, served_model_names=("reciter", "other-name")) as running:
        yield running


@pytest.fixture(scope="session")
def random_server(random_folder: Path) -> Iterator[Running]:
    """A server of the random model, shared likewise."""
    with _serving(random_folder, served_model_names=("random",)) as running:
        yield running
