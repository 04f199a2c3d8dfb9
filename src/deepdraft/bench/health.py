"""Is the server still there, and waiting for one that restarts."""

from __future__ import annotations

import asyncio
import time

from deepdraft.adapters.detect import wait_ready
from deepdraft.adapters.server import ServerLoading
from deepdraft.bench.limits import loading_limit_s
from deepdraft.bench.session import Session
from deepdraft.errors import ServerError, ServerLost
from deepdraft.units import seconds_text

_HEALTH_LIMIT_S = 10.0
_STEP_S = 0.5


async def wait_for_server(session: Session) -> None:
    """Return once the server is well. Waits for one that is gone, and longer for one that says it is loading, as far
    as the limits allow.

    Raises ServerLost when it does not come back in time.
    """
    async with session.waiting:
        await _wait(session)


async def _wait(session: Session) -> None:
    trouble = await _trouble(session)
    if trouble is None:
        return
    limits = session.spec.limits
    limit_s = loading_limit_s(limits) if isinstance(trouble, ServerLoading) else limits.server_wait_s
    began = time.monotonic()
    session.note("wait", f"the server is not well: {trouble.message}; waiting up to {seconds_text(limit_s)}")
    while time.monotonic() - began < limit_s:
        session.progress.tick("waiting for the server")
        await asyncio.sleep(min(_STEP_S, limit_s))
        trouble = await _trouble(session)
        if trouble is None:
            session.note("wait", f"the server is back after {seconds_text(time.monotonic() - began)}")
            return
        if isinstance(trouble, ServerLoading) and limit_s < loading_limit_s(limits):
            limit_s = loading_limit_s(limits)
            session.note("wait", f"it is loading its model; waiting up to {seconds_text(limit_s)}")
    waited = f" (waited {seconds_text(limit_s)})" if limit_s else ""
    raise ServerLost(f"the server was lost: {trouble.message}{waited}")


async def _trouble(session: Session) -> ServerError | None:
    """What is wrong with the server; None when it is well."""
    words = await session.adapter.health(limit_s=_HEALTH_LIMIT_S)
    if words is None:
        return None
    try:
        await wait_ready(session.client, 0.0)
    except ServerError as error:
        return error  # knows more: refused, loading, not HTTP
    return ServerError(words)
