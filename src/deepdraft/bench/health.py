"""Is the server still there, and waiting for one that restarts."""

from __future__ import annotations

import asyncio
import time

from deepdraft.bench.session import Session
from deepdraft.errors import ServerLost
from deepdraft.units import seconds_text

_HEALTH_LIMIT_S = 10.0
_STEP_S = 0.5


async def wait_for_server(session: Session) -> None:
    """Return once the server is well. Waits for one that is gone or loading, as long as the limits allow.

    Raises ServerLost when it does not come back in time.
    """
    trouble = await session.adapter.health(limit_s=_HEALTH_LIMIT_S)
    if trouble is None:
        return
    limit_s = session.spec.limits.server_wait_s
    began = time.monotonic()
    session.note("wait", f"the server is not well ({trouble}); waiting up to {seconds_text(limit_s)}")
    while time.monotonic() - began < limit_s:
        await asyncio.sleep(_STEP_S)
        session.progress.tick("waiting for the server")
        trouble = await session.adapter.health(limit_s=_HEALTH_LIMIT_S)
        if trouble is None:
            session.note("wait", f"the server is back after {seconds_text(time.monotonic() - began)}")
            return
    raise ServerLost(f"the server was lost: {trouble}; waited {seconds_text(limit_s)}")
