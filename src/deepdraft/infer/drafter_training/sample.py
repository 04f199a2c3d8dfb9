"""What a drafter learns from: a prompt, what the target wrote after it, and the target's features of both.

Shape letters: C kept tokens, K tapped layers, H hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """The end of one prompt and the output after it. Tokens further back than a block can see are not kept."""

    start: int
    """Absolute position of the first kept token."""
    num_prompt_tokens: int
    """Kept tokens of the prompt: token_ids[num_prompt_tokens] is the first token of the output."""
    token_ids: Tensor
    """int64 [C]"""
    taps: Tensor
    """[C, K * H]: what left the tapped layers, side by side"""
    is_long: bool = False
    """Whether the prompt is one of the long ones."""
