"""Makes a request cold, as far as the server lets us, and records what was done.

The unique head of each prompt already rules out a prefix hit; the rest (flush, cache salt, cache_prompt) is done
where the engine offers it, and whether it worked is judged afterwards from what the server reports, not assumed.
"""

from __future__ import annotations

import secrets

from deepdraft.adapters.adapter import Adapter
from deepdraft.records import ColdStep


async def flush(adapter: Adapter) -> tuple[ColdStep, ...]:
    """Flush the server's prefix cache where it can be flushed."""
    if "flush" not in adapter.capabilities.cold_means:
        return ()
    step = await adapter.flush()
    return (step,) if step is not None else ()


def cache_salt(adapter: Adapter) -> str | None:
    """A salt that separates this request's cache entries from all others, where the engine knows one."""
    return secrets.token_hex(8) if "cache_salt" in adapter.capabilities.cold_means else None


def standing_steps(adapter: Adapter, head: str | None) -> tuple[ColdStep, ...]:
    """What every request of this sweep carries anyway."""
    steps = [ColdStep(means="unique_head", is_done=head is not None, evidence=head or "no head: the prompt repeats")]
    if "cache_salt" in adapter.capabilities.cold_means:
        steps.append(ColdStep(means="cache_salt", is_done=True, evidence="a random cache_salt in each request"))
    if "cache_prompt" in adapter.capabilities.cold_means:
        steps.append(ColdStep(means="cache_prompt", is_done=True, evidence="cache_prompt: false in each request"))
    return tuple(steps)
