"""Where the time of a decode or verify step went, as the server tells it: seconds of each part in one step.

The server sums over all of a request's steps (of a step that several requests shared, its share), steps without a
draft included; here that is divided by those steps. By the server's clock: what HTTP and the client add is not in it,
so that the client's step time less the sum of the parts is exactly that.
"""

from __future__ import annotations

from collections.abc import Mapping

from deepdraft.metrics.figure import STEP_PARTS
from deepdraft.metrics.speculation import tokens_per_step
from deepdraft.records import Acceptance


def step_parts_s(acceptance: Acceptance, num_output_tokens: int) -> Mapping[str, float]:
    """Mean seconds of a step by part (draft, build, verify, compact, other), in this order, for one request with that
    many output tokens; without those that are not told. Empty where the steps can't be counted."""
    parts, per_step = acceptance.parts, tokens_per_step(acceptance, num_output_tokens)
    if parts is None or per_step is None:
        return {}
    num_steps = (num_output_tokens - 1) / per_step.value
    summed = {name: getattr(parts, f"{name}_s") for name in STEP_PARTS}
    return {name: seconds / num_steps for name, seconds in summed.items() if seconds is not None}
