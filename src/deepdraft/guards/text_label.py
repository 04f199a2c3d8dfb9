"""Not a guard but a mark: which text was sent, and whether it flatters or harms a drafter.

Repetitive text is easy to draft; random tokens are impossible to draft on some engines and overestimate throughput on
others (SPEED-Bench: by about 23 %). Such a label belongs into every report, and into doubt when a drafter is active.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.guards.guard import DECODE_FIGURES, PointEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLabel:
    """What was sent."""

    kinds: tuple[str, ...]
    """As the sweep names them: prose, code, repeat, file:..."""
    nature: str | None
    """repetitive or random; None for natural text."""
    warning: str | None
    """Why figures with a drafter may be off; None for natural text, or without a drafter."""
    doubts: tuple[str, ...] = ()


def text_label(evidence: PointEvidence) -> TextLabel:
    """The label of a point's prompts."""
    prompts = [request.prompt for trial in evidence.point.trials for request in trial.requests]
    kinds = tuple(dict.fromkeys(prompt.text_kind for prompt in prompts)) or (evidence.spec.text,)
    is_repetitive = any(prompt.is_repetitive for prompt in prompts)
    is_random = any(prompt.is_random for prompt in prompts)
    nature = "repetitive" if is_repetitive else "random" if is_random else None
    if nature is None or evidence.capabilities.speculation == "no":
        return TextLabel(kinds=kinds, nature=nature, warning=None)
    effect = "flatters a drafter" if is_repetitive else "distorts what a drafter gives"
    drafter = "is active" if evidence.capabilities.speculation == "yes" else "may be active"
    return TextLabel(
        kinds=kinds,
        nature=nature,
        warning=f"{nature} text {effect}, and one {drafter}: use natural text (prose, code)",
        doubts=(*DECODE_FIGURES, "acceptance_len"),
    )
