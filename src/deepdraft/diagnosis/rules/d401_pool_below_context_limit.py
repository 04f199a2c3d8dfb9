"""A KV pool smaller than the context limit.

What it sees: the tokens the KV pool holds and the longest context the server is configured for.
Why it matters: the server says 200k and refuses (or preempts) what is longer than its pool.
Evidence needed: both, as the server states them.
Remedy: more memory for the pool, or an honest limit.
When it is wrong: models whose cache does not grow with every token in every layer.
"""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.words import capital

CODE = "D401"
NAME = "pool_below_context_limit"


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run."""
    pool, limit = case.capabilities.kv_pool_tokens, case.capabilities.max_context_len
    if pool is None or limit is None or pool >= limit:
        return ()
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="warning",
            summary=f"The KV pool holds {pool:,} tokens and the context limit is {limit:,}: no request longer than "
            "the pool can run, whatever the limit says.",
            evidence=(
                Evidence(name="kv_pool_tokens", value=float(pool), unit="tokens", source="the server"),
                Evidence(name="max_context_len", value=float(limit), unit="tokens", source="the server"),
            ),
            remedy=f"{capital(case.say('pool_up'))}; or {case.say('context_limit')}.",
        ),
    )
