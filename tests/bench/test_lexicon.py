"""What words cost, learned from few questions; what is in doubt stays out."""

from __future__ import annotations

import asyncio
from itertools import cycle

from hypothesis import given, settings
from hypothesis import strategies as st

from deepdraft.bench import english
from deepdraft.bench.head import HEAD_WORDS, STARTERS
from deepdraft.bench.lexicon import COSTLY, FREE, Lexicon, Thoroughness, learn


class Scales:
    """Counts by words; the costly ones are two tokens, at the start of a line or anywhere. Punctuation costs one."""

    def __init__(self, costly: frozenset[str], costly_at_line: frozenset[str] = frozenset()) -> None:
        self.costly = costly
        self.costly_at_line = costly_at_line
        self.num_counts = 0
        self.texts: list[str] = []

    async def count(self, text: str) -> int:
        self.num_counts += 1
        self.texts.append(text)
        total = 11
        for line_index, line in enumerate(text.split("\n")):
            total += 1 if line_index else 0
            for index, word in enumerate(line.split(" ")):
                bare = word.strip(".,")
                total += 1 + len(word) - len(bare)
                total += bare in self.costly or (index == 0 and bare in self.costly_at_line)
        return total

    def learned(self, thoroughness: Thoroughness) -> Lexicon:
        return asyncio.run(learn(self.count, english.vocabulary(), HEAD_WORDS, thoroughness, cycle(STARTERS)))


def test_where_every_word_is_one_token_few_questions_do() -> None:
    scales = Scales(frozenset())
    lexicon = scales.learned(COSTLY)
    assert lexicon.overhead_len == 11
    assert lexicon.words >= {*english.vocabulary(), *HEAD_WORDS}
    assert set(lexicon.head_words) == set(HEAD_WORDS)
    assert (lexicon.comma_len, lexicon.full_stop_len) == (1, 1)
    assert scales.num_counts < 28


@settings(max_examples=25, deadline=None)
@given(
    st.sets(st.sampled_from(sorted({*HEAD_WORDS, *english.vocabulary()})), max_size=60),
    st.sets(st.sampled_from(HEAD_WORDS), max_size=60),
    st.sets(st.sampled_from(STARTERS), max_size=4),
    st.sampled_from([FREE, COSTLY]),
)
def test_a_costly_word_is_never_taken_for_a_cheap_one(
    costly: set[str], at_line: set[str], starters: set[str], thoroughness: Thoroughness
) -> None:
    scales = Scales(frozenset(costly | starters), frozenset(at_line))
    lexicon = scales.learned(thoroughness)
    assert not lexicon.words & costly
    assert not set(lexicon.head_words) & (costly | at_line)
    assert scales.num_counts <= thoroughness.max_counts + 2
    # Each text begins with a word of its own as long as there are such words and they are cheap.
    if not (starters | costly) & set(STARTERS):
        first_words = [text.split()[0] for text in scales.texts[: len(STARTERS)]]
        assert len(set(first_words)) == len(first_words)


def test_a_free_counter_finds_every_cheap_word() -> None:
    costly = frozenset(HEAD_WORDS[::3])
    lexicon = Scales(costly).learned(FREE)
    assert set(HEAD_WORDS) - lexicon.words == costly
    assert set(lexicon.head_words) == set(lexicon.filler_words) == set(HEAD_WORDS) - costly


def test_where_no_word_will_do_letters_make_the_heads() -> None:
    scales = Scales(frozenset((*HEAD_WORDS, *STARTERS)))
    lexicon = scales.learned(COSTLY)
    assert lexicon.filler_words == ()
    assert len(lexicon.head_words) == 26
    assert scales.num_counts <= COSTLY.max_counts + 2


def test_questions_stop_at_their_limit_where_hardly_any_word_is_cheap() -> None:
    scales = Scales(frozenset(word for word in (*HEAD_WORDS, *english.vocabulary()) if len(word) > 3))
    lexicon = scales.learned(COSTLY)
    assert scales.num_counts <= COSTLY.max_counts + 2
    assert all(len(word) <= 3 for word in lexicon.words)


def test_where_characters_are_counted_no_word_is_known() -> None:
    for chars_per_token in (2, 3, 4, 5, 6):

        async def count(text: str, chars_per_token: int = chars_per_token) -> int:
            return 7 + len(text) // chars_per_token

        lexicon = asyncio.run(learn(count, english.vocabulary(), HEAD_WORDS, COSTLY, cycle(STARTERS)))
        assert lexicon.head_words == ()


def test_punctuation_that_does_not_cost_the_same_after_every_word_is_left_out() -> None:
    async def count(text: str) -> int:
        return sum(-(-len(word) // 8) for word in text.split())

    lexicon = asyncio.run(learn(count, english.vocabulary(), HEAD_WORDS, FREE, cycle(STARTERS)))
    assert (lexicon.comma_len, lexicon.full_stop_len) == (None, None)
    assert lexicon.plain(" one, two.") == " one two"
    assert lexicon.num_tokens(" one two") == 2


def test_a_sentence_costs_its_words_and_its_punctuation() -> None:
    lexicon = Lexicon(0, frozenset(), (), (), comma_len=0, full_stop_len=1)
    assert lexicon.plain(" one, two.") == " one, two."
    assert lexicon.num_tokens(" one, two.") == 3
