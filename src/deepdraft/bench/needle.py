"""A fact hidden in a prompt, and whether an answer tells it: can the model still read at this depth?

It makes and checks the fact; where in the prompt it goes is `prompt`'s business.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

from deepdraft.errors import UsageError

# Things that no text source speaks of, so that the word is in the prompt once.
_WORDS = """
Dog Tiger Piano Lemon Anchor Rabbit Violin Pepper Copper Falcon Dragon Cactus Marble Penguin Banana Dolphin
Diamond Rocket Spider Turtle Walnut Zebra Coffee Guitar Hammer Jacket Ladder Magnet Needle Orange Parrot Potato
Saddle Tomato Trumpet Umbrella Wizard Pirate Pyramid Volcano
"""
WORDS = tuple(_WORDS.split())
QUESTION = "What is the secret word? Answer with that one word."
_CLOSED_REASONING = re.compile(r"</think(?:ing)?>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Needle:
    """One hidden fact."""

    word: str
    """The answer."""
    depth_frac: float
    """Where in the body the fact stands: 0 at its start, 1 at its end."""

    @property
    def fact(self) -> str:
        """The sentence to hide."""
        return f"The secret word is {self.word}."

    @property
    def question(self) -> str:
        """What the prompt ends with."""
        return QUESTION


def needle(seed: int, depth_frac: float) -> Needle:
    """A needle whose word follows from the seed.

    Raises UsageError when the depth is no fraction between 0 and 1.
    """
    if not 0 <= depth_frac <= 1:
        raise UsageError(f"a needle's depth is a fraction between 0 and 1, not {depth_frac:g}")
    return Needle(word=Random(f"needle {seed}").choice(WORDS), depth_frac=depth_frac)


def check(answer_text: str, needle: Needle) -> bool:
    """Whether the answer tells the word: as a whole word, in any case.

    Reasoning that ends with </think> is left aside, so that a model which weighs the word and then answers another
    has not found it. Where no end of reasoning is seen, the word may stand anywhere.
    """
    answer = _CLOSED_REASONING.split(answer_text)[-1]
    return re.search(rf"(?<!\w){re.escape(needle.word)}(?!\w)", answer, re.IGNORECASE) is not None
