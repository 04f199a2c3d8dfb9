"""The server of known truth in this event loop: routes, keys, loading, dying and coming back.

    server = Server(spec)
    url = await server.start()
    ...
    await server.stop()

Timing is best in a process and loop of its own (`process.running`), whose timers are finer than asyncio's own.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time

from deepdraft.errors import UsageError
from deepdraft.simulate.dialects import dialect_of
from deepdraft.simulate.dialects.answer import Answer, Query
from deepdraft.simulate.engine import Engine
from deepdraft.simulate.error_body import error_answer
from deepdraft.simulate.faults import FaultPlan
from deepdraft.simulate.generate import Generator
from deepdraft.simulate.http import Connection, HttpRequest, Reply
from deepdraft.simulate.spec import Fault, SimulateSpec
from deepdraft.simulate.tokenizer import Tokenizer
from deepdraft.simulate.truth import truths_json

TRUTH_PATH = "/_truth"
_BACKLOG = 1024
_KILLED_CODE = 137


class Server:
    """One server of known truth."""

    def __init__(self, spec: SimulateSpec) -> None:
        self.spec = spec
        self._engine = Engine(spec, Tokenizer())
        self._dialect = dialect_of(spec, self._engine)
        self._faults = FaultPlan(spec.faults)
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._generator = Generator(
            dialect=self._dialect,
            engine=self._engine,
            faults=self._faults,
            die=self._die,
            num_connections=lambda: len(self._connections),
        )
        self._routes = self._dialect.generation_routes()
        self._endpoints = self._dialect.endpoints()
        self._listener: asyncio.Server | None = None
        self._port = spec.port
        self._ready_s = 0.0

    async def start(self) -> str:
        """Listen; returns the URL, base path included.

        Raises UsageError when the address can't be used or the certificate can't be read.
        """
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(
                lambda: Connection(
                    self._serve,
                    self._dialect.common_headers,
                    self._connections,
                    self._tasks,
                    keep_alive_s=self.spec.surface.keep_alive_s,
                ),
                self.spec.host,
                self._port,
                backlog=_BACKLOG,
                ssl=self._tls(),
            )
        except OSError as error:
            raise UsageError(f"can't listen on {self.spec.host}:{self._port}: {error}") from error
        self._port = self._listener.sockets[0].getsockname()[1]
        self._ready_s = time.monotonic() + self.spec.confounds.loading_s
        host = f"[{self.spec.host}]" if ":" in self.spec.host else self.spec.host
        scheme = "https" if self.spec.surface.certfile else "http"
        return f"{scheme}://{host}:{self._port}{self.spec.surface.base_path}"

    async def stop(self) -> None:
        """Close the listening socket and drop all connections."""
        self._close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- life

    def _tls(self) -> ssl.SSLContext | None:
        surface = self.spec.surface
        if not surface.certfile:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(surface.certfile, surface.keyfile)
        return context

    def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in list(self._connections):
            connection.abort()

    def _die(self, fault: Fault) -> None:
        if fault.die_by == "exit":
            os._exit(_KILLED_CODE)
        self._close()
        self._engine.restart()
        if fault.restart_after_s is not None:
            task = asyncio.get_running_loop().create_task(self._restart(fault.restart_after_s))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _restart(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self.start()

    # --- requests

    async def _serve(self, request: HttpRequest, reply: Reply) -> None:
        path = request.path
        base_path = self.spec.surface.base_path
        if path in (TRUTH_PATH, base_path + TRUTH_PATH):
            reply.send(self._truth(request))
            return
        fault = self._faults.strike("all")
        if fault is not None and await self._struck(fault, reply):
            return
        if base_path:
            if not path.startswith(base_path + "/"):
                reply.send(self._dialect.not_found(path))
                return
            path = path.removeprefix(base_path)
        if time.monotonic() < self._ready_s:
            reply.send(self._dialect.loading())
            return
        if not self._is_allowed(path, request.headers):
            reply.send(self._dialect.unauthorized())
            return
        shape = self._routes.get(path)
        if shape is not None and request.method == "POST":
            await self._generator.serve(request, path, shape, reply)
            return
        endpoint = self._endpoints.get((request.method, path))
        if endpoint is None:
            reply.send(self._dialect.not_found(path))
            return
        query = Query(request.method, path, request.arguments, request.headers, request.body)
        reply.send(await endpoint(query))

    def _truth(self, request: HttpRequest) -> Answer:
        body = truths_json(self._generator.truths)
        if request.arguments.get("reset") == "1":
            self._generator.truths.clear()
        return Answer(200, "application/json", body)

    async def _struck(self, fault: Fault, reply: Reply) -> bool:
        if fault.kind == "stall":
            await asyncio.get_running_loop().create_future()
        if fault.kind == "die":
            self._die(fault)
            return True
        reply.send(error_answer(fault, self._dialect))
        return True

    def _is_allowed(self, path: str, headers: dict[str, str]) -> bool:
        key = self._dialect.key_for(path)
        return key is None or headers.get("authorization") == f"Bearer {key}"
