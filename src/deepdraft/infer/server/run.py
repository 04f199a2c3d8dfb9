"""The server as a process: listens, says where, drains on SIGTERM or Ctrl-C, and ends.

A first signal lets running requests end (at most the drain timeout) while new ones get 503; a second ends the process
at once. The engine's death ends it with an error, after everyone who waits was told.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from typing import Any

import uvicorn

from deepdraft.errors import UsageError
from deepdraft.infer.server.app import build_app
from deepdraft.infer.server.service import Service
from deepdraft.infer.server.settings import ServeSettings
from deepdraft.version import VERSION

_BACKLOG = 512
_KEEP_ALIVE_S = 75
"""Longer than common proxies keep idle connections, so that it is they who close them."""
_FLUSH_LIMIT_S = 3
"""How long answers that are complete may still take to be read when the server ends."""
_LAST_WORDS_S = 2.0
"""How long a server whose engine died still answers, so that health checks see it."""


def listening_socket(host: str, port: int) -> socket.socket:
    """Bound, not yet listening. Raises UsageError when the address can't be had."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # Named as TCP: with protocol 0 asyncio leaves Nagle's algorithm on, and events wait for each other.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"can't listen on {host} port {port}: {reason}", hint="choose another --port") from None
    return bound


def url_of(bound: socket.socket) -> str:
    """Where it listens."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """uvicorn's server with our way to end. `on_ready` is called once it answers."""

    def __init__(self, service: Service, settings: ServeSettings, on_ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                build_app(service, api_key=settings.api_key),
                http="httptools",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=settings.log_level == "debug",
                server_header=False,
                backlog=_BACKLOG,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_FLUSH_LIMIT_S,
            )
        )
        self._service = service
        self._drain_timeout_s = settings.drain_timeout_s
        self._on_ready = on_ready
        self._ending: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self.is_in_order = True
        """False once the engine has died."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn has it, then say so."""
        await super().startup(sockets)
        self._watching = asyncio.ensure_future(self._end_with_engine())
        if not self.should_exit:
            self._on_ready()

    def end(self) -> None:
        """Take nothing more, let running requests end, then end. Only the first call counts."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._drain())

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """SIGINT and SIGTERM, where this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _on_signal(self, number: signal.Signals) -> None:
        if self._ending is not None:
            _say("ended at once")
            leave(128 + number)
        num_open = self._service.worker.num_open
        if num_open:
            _say(f"draining {num_open} requests, at most {self._drain_timeout_s:g} s; the next signal ends at once")
        self.end()

    async def _drain(self) -> None:
        if not await self._service.worker.drain(self._drain_timeout_s):
            _say("the drain timeout is over: what still ran was dropped")
        self.should_exit = True

    async def _end_with_engine(self) -> None:
        await self._service.worker.died.wait()
        self.is_in_order = False
        await asyncio.sleep(_LAST_WORDS_S)
        self.should_exit = True


def serve(service: Service, settings: ServeSettings, bound: socket.socket) -> bool:
    """Serve until told to end; the URL goes to stdout once it serves. False: the engine died."""
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    for name in ("deepdraft", "uvicorn"):
        logging.getLogger(name).setLevel(settings.log_level.upper())
    gc.collect()
    gc.freeze()  # the model and all modules: not looked at again by collections while requests wait

    def on_ready() -> None:
        _say(f"listening on {url_of(bound)}")
        print(f"url {url_of(bound)}", flush=True)

    server = Server(service, settings, on_ready)

    asyncio.run(server.serve([bound]))
    if not service.worker.stop(0):
        # A step is still running in the engine's thread. Python can't end a thread that is inside torch.
        leave(0 if server.is_in_order else 4)
    return server.is_in_order


def leave_with_stdin() -> None:
    """End the process at once when standard input closes: the parent that held it is gone."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        leave(0)

    threading.Thread(target=wait, name="stdin", daemon=True).start()


def leave(code: int) -> None:
    """End the process without waiting for anything."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def introduction(facts: Mapping[str, Any]) -> str:
    """What the server is, in the few lines that it starts with; from /server_info."""
    radix = "on" if facts["has_radix_cache"] else "off"
    lines = [
        f"deepdraft {VERSION}: {facts['model']} ({facts['model_type']}), weights {facts['weight_dtype']} "
        f"{_size(facts['weight_bytes'])}, computed in {facts['dtype']} on {facts['device']}",
        f"context limit {facts['max_context_len']} tokens; KV pool {facts['kv_pool_tokens']} tokens, "
        f"{facts['kv_pool_pages']} pages of {facts['page_size']}, {facts['kv_pool_bytes']} bytes "
        f"({_size(facts['kv_pool_bytes'])}; predicted {facts['predicted_kv_pool_bytes']})",
        f"attention {facts['attention_backend']}, threads {facts['num_threads']}, prefill in chunks of "
        f"{facts['chunk_len']}, {facts['max_running_requests']} running and {facts['max_queued_requests']} queued "
        f"requests at most, radix cache {radix}",
        *_drafting_lines(facts),
        *(f"note: {note}" for note in (*facts["model_notes"], facts["attention_note"]) if note),
    ]
    if facts["kv_pool_tokens"] < facts["max_context_len"]:
        lines.append(
            f"note: the pool, not the context limit, bounds a request: {facts['kv_pool_tokens']} tokens "
            "(raise --kv-pool-tokens or --mem-fraction)"
        )
    return "\n".join(lines)


def _drafting_lines(facts: Mapping[str, Any]) -> list[str]:
    """How it drafts and what that takes of the pool; a warning where acceptance is simulated."""
    drafting = facts["speculation"]
    if drafting is None:
        return ["no drafter (--drafter embedded or ngram)"]
    draft_len, budget = drafting["draft_len"], drafting["tree_budget"]
    shape = f"trees of {budget} nodes, {drafting['tree_top_k']} candidates a depth"
    if drafting["tree_top_k"] == 1:
        shape = f"chains of {min(draft_len, budget)}"
    window = ""
    if drafting["draft_window"] is not None:
        sink = f" and the first {drafting['draft_sink']}" if drafting["draft_sink"] else ""
        window = f", sees the last {drafting['draft_window']} tokens{sink}"
    kv_bytes = drafting["kv_bytes_per_token"]
    when = {"auto": "where it pays", "always": "at every step", "never": "NEVER, it only looks on"}[drafting["mode"]]
    lines = [
        f"drafter {drafting['method']} ({drafting['drafter']}), {when}: {shape}, up to {draft_len} deep{window}; "
        f"KV {kv_bytes} of {facts['kv_bytes_per_token']} bytes a token, "
        f"{_size(kv_bytes * facts['kv_pool_tokens'])} of the pool"
    ]
    if drafting["simulate_acceptance_len"] is not None:
        lines.append(
            f"WARNING: acceptance is SIMULATED at {drafting['simulate_acceptance_len']:g} tokens a step: the output "
            "has no meaning, and no rate is a result of the drafter"
        )
    return lines


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:.1f} MiB" if num_bytes < 2**30 else f"{num_bytes / 2**30:.2f} GiB"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
