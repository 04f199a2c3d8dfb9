"""The drafter reads its own KV cache of the whole context each round, without a window.

Reported in vllm #54691 (71 tok/s without, 12 to 16 with the drafter at 185k) and others; a window of some thousand
tokens makes its cost flat.
"""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Hypothesis, Support

_WINDOW_SETTINGS = ("speculative_draft_window_size", "speculative_dflash_draft_window_size")


def drafter_rescan(case: Case) -> Hypothesis:
    """Support depends on whether a window is known to be set and whether step times are known."""
    window = next((case.settings[name] for name in _WINDOW_SETTINGS if case.settings.get(name)), None)
    support: Support
    if window is not None:
        support, why = "against", f"the drafter has a window of {window} tokens"
    elif case.is_step_known:
        support, why = "some", "steps grow slower with the drafter than without, and no window is known to be set"
    else:
        support, why = "weak", "tokens a step are not known, so fewer accepted drafts would look the same"
    return Hypothesis(
        name="drafter_rescan",
        support=support,
        why=why,
        prediction="With a window the extra time of a step is the same at every length; accepted drafts hardly "
        "change.",
        experiment=f"Measure one long length with {case.say('draft_window')}, all else the same, counting steps.",
    )
