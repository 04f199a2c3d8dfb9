"""Rows of the KV cache lie scattered in memory (page size 1), so that reads are short and random.

Published cost of page size 1 itself: 1.03 to 2.3 times (FlashAttention #1999 and #2104, FlashInfer MLA in sglang
#8593), 4.6 times in a naive kernel; none from page size 16 on. It can't explain a factor of ten.
"""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Hypothesis, Support
from deepdraft.diagnosis.number import times

MAX_FACTOR = 2.5
GONE_AT_PAGE = 16


def page_scatter(case: Case, factor: float) -> Hypothesis:
    """`factor`: how many times above what kernels attain."""
    page_size = case.capabilities.page_size
    support: Support
    if page_size is not None and page_size >= GONE_AT_PAGE:
        support, why = "against", f"the page size is {page_size}: rows lie together"
    elif factor > 2 * MAX_FACTOR:
        support = "against"
        why = f"scattered rows cost {MAX_FACTOR}x at most, so they can't explain {times(factor)}; they may add to it"
    else:
        support = "weak"
        why = (
            f"the page size is {page_size if page_size is not None else 'not known'}; {times(factor)} is within reach"
        )
    return Hypothesis(
        name="page_scatter",
        support=support,
        why=why,
        prediction=f"At page size 16 or more it is gone; at most {MAX_FACTOR}x at any length.",
        experiment=f"Serve with {case.say('page_size')} and measure one long length again; or compare shuffled "
        "with contiguous slots in one kernel.",
    )
