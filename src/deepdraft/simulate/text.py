"""What the simulated model says: words that don't repeat, or the answer to a hidden fact.

One generated token is one piece of the server's tokenizer, except with `retokenise`, where it is a word that the
tokenizer would split into three. Nothing here knows about time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from deepdraft.simulate.spec import Confounds
from deepdraft.simulate.tokenizer import Tokenizer

_CONSONANTS = "bdfghjklmnprstvz"
_VOWELS = "aeiou"
_SYLLABLES = tuple(consonant + vowel for consonant in _CONSONANTS for vowel in _VOWELS)
_NUM_WORDS = len(_SYLLABLES) ** 3
# Coprime to the number of words, so that the words of one answer only repeat after all of them were used.
_STRIDE = 251_789
_FOREIGN = (" déjà", " naïf", " 日本語", " Ωμέγα", "🙂", " поток", " übung", "🚢")
_FACT = re.compile(r"(?:secret|magic) (?:word|code)[^.]{0,200}? is (\w+)")
_QUESTION = re.compile(r"(?:secret|magic) (?:word|code)[^?.]{0,200}\?")
_QUESTION_REACH = 600
_WRONG_ANSWER = "Turnip"


def words(seed: int, confounds: Confounds) -> Iterator[str]:
    """Endless output text, one token each; all words of one answer differ (for half a million tokens)."""
    index = (seed * 7_919) % _NUM_WORDS
    num_made = 0
    while True:
        index = (index + _STRIDE) % _NUM_WORDS
        num_made += 1
        if confounds.non_ascii and num_made % 2 == 0:
            yield _FOREIGN[(num_made // 2) % len(_FOREIGN)]
        elif confounds.retokenise:
            # 6 + 6 + 6 letters: pieces of 8, 8 and 2
            yield " " + _word(index) + _word(index + 1) + _word(index + 2)
        else:
            yield " " + _word(index)


def needle_answer(prompt: str, confounds: Confounds, tokenizer: Tokenizer) -> list[str] | None:
    """The answer's pieces when the prompt tells a secret (or magic) word (or code) and asks for it at its end."""
    if "secret" not in prompt and "magic" not in prompt:
        return None
    question_at = max(0, len(prompt) - _QUESTION_REACH)
    questions = list(_QUESTION.finditer(prompt, question_at))
    if not questions:
        return None
    # The last question is what is asked; a fact inside it is none.
    fact = _FACT.search(prompt, 0, questions[-1].start())
    answer = fact[1] if fact else "unknown"
    if confounds.needle_wrong:
        answer = _WRONG_ANSWER
    return [*tokenizer.pieces(" " + answer), "."]


def template_pieces(template_len: int) -> tuple[list[str], list[str]]:
    """What a chat template puts before and after the text, `template_len` tokens together; more of it before."""
    tail = ["\n", "reply", "\n"][: min(3, template_len // 2)]
    head_len = template_len - len(tail)
    if head_len == 0:
        return [], tail
    head = [" " + _word(index * _STRIDE % _NUM_WORDS) for index in range(head_len - 1)]
    return [*head, "\n"], tail


def _word(index: int) -> str:
    index %= _NUM_WORDS
    first, rest = divmod(index, len(_SYLLABLES) ** 2)
    second, third = divmod(rest, len(_SYLLABLES))
    return _SYLLABLES[first] + _SYLLABLES[second] + _SYLLABLES[third]
