"""The context nears the size of the KV pool: requests are retracted or preempted and computed again, or caches are
evicted, while a long one decodes."""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Hypothesis, Support
from deepdraft.diagnosis.number import percent
from deepdraft.diagnosis.words import capital

NEAR_POOL = 0.85


def retraction(case: Case, context_len: float) -> Hypothesis:
    """`context_len`: the first length after the knee."""
    pool = case.capabilities.kv_pool_tokens
    preempted = num_preemptions(case)
    support: Support
    if preempted:
        support, why = "strong", f"the server counted {preempted:,} preemptions during the run"
    elif pool is None:
        support, why = "weak", "the size of the KV pool is not known"
    elif context_len >= NEAR_POOL * pool:
        support = "some"
        why = f"{percent(context_len / pool)} of the pool's {pool:,} tokens are in use there"
    else:
        support, why = "against", f"only {percent(context_len / pool)} of the pool's {pool:,} tokens are in use there"
    return Hypothesis(
        name="retraction_near_pool",
        support=support,
        why=why,
        prediction="The knee moves with the pool's size, and the server tells of preemptions.",
        experiment=f"{capital(case.say('preemptions'))}; or {case.say('pool_up')} and measure the same length.",
    )


def num_preemptions(case: Case) -> int:
    """Preemptions that the server's counters show over the run's trials."""
    rises = [
        trial.after.counters.get("num_preemptions", 0) - trial.before.counters.get("num_preemptions", 0)
        for trial in case.run.trials
        if trial.before is not None and trial.after is not None
    ]
    return round(sum(rise for rise in rises if rise > 0))
