"""Empties a server's prefix cache: asks until it is done, for a while. The path is the adapters' business."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from deepdraft.adapters.message import error_message
from deepdraft.adapters.server import Reply, Server
from deepdraft.records import ColdStep

FLUSH_LIMIT_S = 10.0
"""How long a flush that is refused, since requests are still running, is tried again."""
_PAUSE_S = 0.2


async def flushed(server: Server, path: str, is_refused: Callable[[Reply], bool]) -> ColdStep:
    """POST until the flush is done or FLUSH_LIMIT_S is over; what came of it. `is_refused` reads a reply: whether the
    server declined because requests are still running or held."""
    began = time.monotonic()
    num_tries = 0
    while True:
        num_tries += 1
        reply = await server.try_post(path, None, is_admin=True)
        waited_s = time.monotonic() - began
        waited = "" if num_tries == 1 else f" (try {num_tries}, after {waited_s:.1f} s)"
        if reply is None:
            return _step(path, f"no answer{waited}")
        if reply.status in (401, 403):
            return _step(path, f"{error_message(reply.status, reply.body)}; it wants --admin-key")
        refused = is_refused(reply)
        if not refused or waited_s > FLUSH_LIMIT_S:
            words = reply.text.splitlines()[0][:200] if reply.text else "no body"
            is_done = reply.status == 200 and not refused
            return _step(path, f"HTTP {reply.status}, {words}{waited}", is_done=is_done)
        await asyncio.sleep(_PAUSE_S)


def flush_refused(reply: Reply) -> bool:
    """400, as SGLang and our own server say that requests are running or queued."""
    return reply.status == 400


def _step(path: str, outcome: str, *, is_done: bool = False) -> ColdStep:
    return ColdStep(means="flush", is_done=is_done, evidence=f"POST {path}: {outcome}")
