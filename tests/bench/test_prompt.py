"""Prompts have the asked length as the server counts it, and no two of them begin alike.

The servers here count in-process, each in another way; they strip a prompt, as chat templates do, and keep every text
they were sent.
"""

from __future__ import annotations

import asyncio
import re
import sysconfig
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepdraft.bench.calibration import Calibration
from deepdraft.bench.counting import EndpointCounter, IdRoute, LocalTokenizer, UsageCounter
from deepdraft.bench.needle import Needle, check, needle
from deepdraft.bench.prompt import INSTRUCTION, Prompt, PromptMaker
from deepdraft.bench.text import text_source
from deepdraft.errors import HttpStatus, UsageError

tokenizers = pytest.importorskip("tokenizers")

NumTokens = Callable[[str], int]

_PIECE = re.compile(r"\n| ?[^\W_]{1,8}|.", re.DOTALL)
_SUPERWORD = re.compile(r" ?(?:the|this|that|every|each|his|her) \w+| ?\w+|[^\w\s]|\n+|\s")


def whitespace_words(text: str) -> int:
    return len(text.split())


def words_of_8(text: str) -> int:
    """Words in pieces of up to 8 characters, punctuation with its word."""
    return sum(-(-len(word) // 8) for word in text.split())


def pieces_of_8(text: str) -> int:
    """Words in pieces of up to 8 letters, everything else a character at a time."""
    return sum(1 for _ in _PIECE.finditer(text))


def quarter_chars(text: str) -> int:
    return len(text) // 4


def superwords(text: str) -> int:
    """Some pairs of words are one token: a text costs less than its words."""
    return sum(1 for _ in _SUPERWORD.finditer(text))


SIMPLE: dict[str, NumTokens] = {
    "whitespace words": whitespace_words,
    "words of 8": words_of_8,
    "pieces of 8": pieces_of_8,
    "characters / 4": quarter_chars,
    "superwords": superwords,
}
# Learned from text while the tests run; see `trained`.
TRAINED = ("byte-level BPE", "SentencePiece-like")
ADDS_UP = ("whitespace words", "words of 8", "pieces of 8", *TRAINED)
EVERY = (*SIMPLE, *TRAINED)


source_of = cache(text_source)
"""Sources hold no state, so the tests share them."""


def _corpus() -> list[str]:
    library = Path(sysconfig.get_path("stdlib"))
    code = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(library.glob("*.py"))[:60]]
    sentences = text_source("prose").pieces(0)
    return [*code, *("".join(next(sentences) for _ in range(500)) for _ in range(6))]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two real tokenizers of 6,000 tokens: GPT-like, and one that writes a mark for a space and puts one before a
    text; both rather coarse, so that many words are several tokens."""
    pre, models = tokenizers.pre_tokenizers, tokenizers.models
    kinds: dict[str, tuple[Any, list[str]]] = {
        "byte-level BPE": (pre.ByteLevel(add_prefix_space=False), pre.ByteLevel.alphabet()),
        "SentencePiece-like": (
            pre.Sequence([pre.Split("\n", "isolated"), pre.Metaspace(prepend_scheme="first")]),
            [],
        ),
    }
    corpus = _corpus()
    folders = {}
    for name, (splitter, alphabet) in kinds.items():
        made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
        made.pre_tokenizer = splitter
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=6_000,
            special_tokens=["<unk>", "<s>"],
            initial_alphabet=alphabet,
            show_progress=False,
        )
        made.train_from_iterator(corpus, trainer)
        made.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
        folder = tmp_path_factory.mktemp("tokenizer")
        made.save(str(folder / "tokenizer.json"))
        folders[name] = folder
    return folders


@pytest.fixture(scope="module")
def num_tokens_by(trained: dict[str, Path]) -> dict[str, NumTokens]:
    found = dict(SIMPLE)
    for name, folder in trained.items():
        made = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))

        def num_tokens(text: str, made: Any = made) -> int:
            return len(made.encode_batch_fast([text], add_special_tokens=False)[0])

        found[name] = num_tokens
    return found


@dataclass
class Server:
    """Counts prompts, template included, and remembers them."""

    num_tokens: NumTokens
    template_len: int = 7
    truncates_at: int | None = None
    texts: list[str] = field(default_factory=list)
    counted_chars: int = 0

    def prompt_len(self, text: str) -> int:
        total_len = self.template_len + self.num_tokens(text.strip())
        return total_len if self.truncates_at is None else min(total_len, self.truncates_at)

    async def probe(self, text: str) -> int:
        self.texts.append(text)
        return self.prompt_len(text)

    async def tokenize(self, text: str) -> int:
        self.counted_chars += len(text)
        return self.num_tokens(text)

    def maker(self, kind: str, *, is_cheap: bool, **options: Any) -> tuple[PromptMaker, UsageCounter]:
        usage = UsageCounter(self.probe)
        maker = PromptMaker(
            source_of(kind),
            probe=usage,
            counter=EndpointCounter(self.tokenize) if is_cheap else None,
            **{"seed": 1, "head_seed": 2, **options},
        )
        return maker, usage

    def send(self, prompt: Prompt) -> int:
        assert prompt.text is not None
        self.texts.append(prompt.text)
        return self.prompt_len(prompt.text)


def most_words_shared(texts: Sequence[str]) -> int:
    """The longest beginning, in words, that two texts have in common."""
    rows = sorted(text.split()[:40] for text in texts)
    longest = 0
    for one, other in pairwise(rows):
        shared = 0
        for a, b in zip(one, other, strict=False):
            if a != b:
                break
            shared += 1
        longest = max(longest, shared)
    return longest


# Exact lengths


@pytest.mark.parametrize("template_len", [7, 211])
@pytest.mark.parametrize("kind", ["prose", "code", "repeat", "random"])
@pytest.mark.parametrize("nature", EVERY)
def test_a_cheap_counter_gives_exact_prompts(
    num_tokens_by: dict[str, NumTokens], nature: str, kind: str, template_len: int
) -> None:
    server = Server(num_tokens_by[nature], template_len)
    maker, usage = server.maker(kind, is_cheap=True)
    # 4,095 and 8,191 stand just under the buckets that some servers pad to.
    for asked_len in (300, 1_000, 4_095, 8_191):
        prompt = asyncio.run(maker.make(asked_len))
        assert server.send(prompt) == asked_len
        assert (prompt.asked_len, prompt.expected_len, prompt.is_exact) == (asked_len, asked_len, True)
        assert prompt.count_source == "server tokenize endpoint"
    assert usage.num_probes == 2
    assert most_words_shared(server.texts) == 0


@pytest.mark.parametrize("nature", EVERY)
def test_a_cheap_counter_gives_exact_prompts_of_any_length(num_tokens_by: dict[str, NumTokens], nature: str) -> None:
    server = Server(num_tokens_by[nature])
    maker, _ = server.maker("prose", is_cheap=True)
    asyncio.run(maker.calibrate())
    for asked_len in (100, 60_010, 200_000):
        before_chars = server.counted_chars
        prompt = asyncio.run(maker.make(asked_len))
        assert prompt.text is not None
        assert server.send(prompt) == asked_len == prompt.expected_len
        # No quadratic work: everything is counted twice, sometimes once more, and not once a piece. Counting
        # characters, which no tokenizer does, takes a few cuts more.
        most = 8 if nature == "characters / 4" else 3.5
        assert server.counted_chars - before_chars < most * len(prompt.text) + 20_000


def test_two_hundred_thousand_tokens_are_built_in_less_than_a_second() -> None:
    server = Server(whitespace_words)
    maker, _ = server.maker("prose", is_cheap=True)
    asyncio.run(maker.calibrate())
    started_s = time.process_time()
    prompt = asyncio.run(maker.make(200_000))
    assert time.process_time() - started_s < 1.0
    assert server.send(prompt) == 200_000


@settings(max_examples=60, deadline=None)
@given(
    asked_len=st.integers(60, 6_000),
    seed=st.integers(0, 2**63),
    template_len=st.integers(0, 30),
    nature=st.sampled_from(sorted(SIMPLE)),
    kind=st.sampled_from(["prose", "random", "repeat"]),
)
def test_any_length_seed_and_template_come_out_exact(
    asked_len: int, seed: int, template_len: int, nature: str, kind: str
) -> None:
    server = Server(SIMPLE[nature], template_len)
    maker, _ = server.maker(kind, is_cheap=True, seed=seed, head_seed=seed + 1)
    prompt = asyncio.run(maker.make(asked_len))
    assert server.send(prompt) == asked_len == prompt.expected_len


@pytest.mark.parametrize("template_len", [7, 211])
@pytest.mark.parametrize("kind", ["prose", "code", "repeat", "random"])
@pytest.mark.parametrize("nature", ADDS_UP)
def test_usage_alone_gives_exact_prompts_where_costs_add_up(
    num_tokens_by: dict[str, NumTokens], nature: str, kind: str, template_len: int
) -> None:
    server = Server(num_tokens_by[nature], template_len)
    maker, usage = server.maker(kind, is_cheap=False)
    calibration = asyncio.run(maker.calibrate())
    assert calibration.count_source == "usage probes"
    assert calibration.overhead_len == template_len
    assert calibration.num_probes == usage.num_probes <= 110
    own_len = usage.num_probed_tokens - usage.num_probes * template_len
    assert own_len <= 9_000
    for asked_len in (1_000, 8_000, 100_000):
        prompt = asyncio.run(maker.make(asked_len))
        assert abs(server.send(prompt) - asked_len) <= 2
        assert prompt.is_exact
    if calibration.method.startswith("sum of words"):
        assert usage.num_probes <= calibration.num_probes + 2
    else:
        # All blocks of the three prompts together: the longest prompt once, in short probes. A text that repeats
        # itself needs no more blocks than show all of it.
        assert usage.num_probes - calibration.num_probes <= (30 if kind == "repeat" else 100)
        own_len = usage.num_probed_tokens - usage.num_probes * (template_len + 40)
        assert own_len <= 1.15 * 100_000 + 9_000
    again_from = usage.num_probes
    prompt = asyncio.run(maker.make(100_000))
    assert abs(server.send(prompt) - 100_000) <= 2
    assert usage.num_probes - again_from <= 12
    assert most_words_shared(server.texts) <= 1


@pytest.mark.parametrize("nature", ["whitespace words", "pieces of 8"])
def test_prose_of_known_words_costs_no_probe_at_all(nature: str) -> None:
    server = Server(SIMPLE[nature])
    maker, usage = server.maker("prose", is_cheap=False)
    calibration = asyncio.run(maker.calibrate())
    assert "words known to cost one token" in calibration.method
    assert usage.num_probes < 30
    for asked_len in (1_000, 60_010, 200_000):
        assert server.send(asyncio.run(maker.make(asked_len))) == asked_len
    assert usage.num_probes == calibration.num_probes


@pytest.mark.parametrize("kind", ["prose", "code", "repeat"])
@pytest.mark.parametrize("nature", ["characters / 4", "superwords"])
def test_counts_that_do_not_add_up_are_tried_and_corrected(nature: str, kind: str) -> None:
    server = Server(SIMPLE[nature], 211)
    maker, usage = server.maker(kind, is_cheap=False)
    calibration = asyncio.run(maker.calibrate())
    if nature == "characters / 4" or kind == "prose":
        assert calibration.method == "tried and corrected"
        assert "estimates" in " ".join(calibration.notes)
    for asked_len in (1_000, 8_000):
        before = usage.num_probes
        prompt = asyncio.run(maker.make(asked_len))
        assert usage.num_probes - before <= (6 if calibration.method == "tried and corrected" else 40)
        actual_len = server.send(prompt)
        assert abs(actual_len - asked_len) <= 2
        assert abs(actual_len - prompt.expected_len) <= 1


def test_a_long_prompt_that_was_an_estimate_is_corrected_by_its_measurement() -> None:
    server = Server(quarter_chars, 211)
    maker, usage = server.maker("prose", is_cheap=False, max_probe_len=2_000)
    asyncio.run(maker.make(1_000))
    before = usage.num_probes
    # Another template than the one calibrated with, so that the estimate is wrong.
    server.template_len += 100
    first = asyncio.run(maker.make(100_000))
    actual_len = server.send(first)
    assert not first.is_exact
    assert 50 < abs(actual_len - 100_000) < 150
    assert asyncio.run(maker.feedback(first, actual_len))
    second = asyncio.run(maker.make(100_000))
    assert abs(server.send(second) - 100_000) <= 2
    assert not second.is_exact
    assert usage.num_probes == before


def test_a_long_prompt_of_counts_that_do_not_add_up_is_a_fair_estimate() -> None:
    server = Server(superwords, 211)
    maker, _ = server.maker("prose", is_cheap=False)
    asyncio.run(maker.make(8_000))
    prompt = asyncio.run(maker.make(100_000))
    assert not prompt.is_exact
    assert abs(server.send(prompt) - 100_000) < 1_000


# Beginnings


@pytest.mark.parametrize("is_cheap", [True, False])
def test_no_request_begins_like_another(is_cheap: bool) -> None:
    """Calibration, warm-ups, health checks and measured prompts together."""
    server = Server(pieces_of_8)
    maker, _ = server.maker("prose", is_cheap=is_cheap)
    server.texts += [maker.short_text() for _ in range(5)]
    asyncio.run(maker.calibrate())
    num_probes = len(server.texts) - 5
    for _ in range(400):
        server.send(asyncio.run(maker.make(120)))
    server.texts += [maker.short_text() for _ in range(15)]
    assert len(server.texts) == 420 + num_probes
    assert most_words_shared(server.texts) == 0


def test_five_hundred_prompts_begin_with_five_hundred_words() -> None:
    server = Server(whitespace_words)
    maker, _ = server.maker("prose", is_cheap=True)
    prompts = [asyncio.run(maker.make(100)) for _ in range(500)]
    assert len({prompt.head.split()[0] for prompt in prompts}) == 500
    assert len({prompt.sha256 for prompt in prompts}) == 500


@pytest.mark.parametrize("nature", TRAINED)
def test_five_hundred_prompts_differ_within_their_first_four_tokens(
    num_tokens_by: dict[str, NumTokens], trained: dict[str, Path], nature: str
) -> None:
    """These tokenizers know few words whole, so that first words run out; what follows them differs then."""
    made = tokenizers.Tokenizer.from_file(str(trained[nature] / "tokenizer.json"))
    server = Server(num_tokens_by[nature])
    maker, _ = server.maker("prose", is_cheap=True)
    calibration = asyncio.run(maker.calibrate())
    texts = [asyncio.run(maker.make(100)).text or "" for _ in range(500)]
    firsts = [made.encode(text, add_special_tokens=False).ids[:4] for text in texts]
    assert len({ids[0] for ids in firsts}) == min(500, calibration.num_head_words) > 100
    assert len({tuple(ids) for ids in firsts}) == 500


def test_the_same_command_run_twice_sends_other_prompts() -> None:
    """The second run of a command must not find the first one's prompts cached."""
    server = Server(pieces_of_8)
    for _ in range(2):
        maker, _ = server.maker("prose", is_cheap=False, head_seed=None)
        for _ in range(20):
            server.send(asyncio.run(maker.make(300)))
    made = [text for text in server.texts if text.endswith(INSTRUCTION)]
    assert most_words_shared(made) <= 2
    assert len({text[:30] for text in made}) == len(made)


def test_anything_unique_stands_at_the_front() -> None:
    server = Server(pieces_of_8)
    maker, _ = server.maker("prose", is_cheap=True)
    prompt = asyncio.run(maker.make(500))
    assert prompt.text is not None
    assert prompt.text.startswith(f"{prompt.head} ")
    assert prompt.text.endswith(INSTRUCTION)
    assert prompt.text == prompt.text.strip()
    assert len(INSTRUCTION.split()) <= 12


# Bodies


@pytest.mark.parametrize("is_cheap", [True, False])
@pytest.mark.parametrize("kind", ["prose", "code"])
def test_repeats_have_other_bodies_unless_the_same_is_asked_for(kind: str, is_cheap: bool) -> None:
    server = Server(pieces_of_8)
    maker, _ = server.maker(kind, is_cheap=is_cheap)
    one, other = (asyncio.run(maker.make(3_000)) for _ in range(2))
    same = asyncio.run(maker.same_body(one))
    assert one.text and other.text and same.text
    assert one.text[len(one.head) : len(one.head) + 200] != other.text[len(other.head) : len(other.head) + 200]
    assert same.text[len(same.head) :] == one.text[len(one.head) :]
    assert same.head.split()[0] != one.head.split()[0]
    assert [server.send(prompt) for prompt in (one, other, same)] == [3_000] * 3
    assert (same.expected_len, same.is_exact) == (3_000, True)
    assert same.sha256 != one.sha256


@pytest.mark.parametrize("is_cheap", [True, False])
@pytest.mark.parametrize("nature", EVERY)
def test_the_same_body_costs_the_same(num_tokens_by: dict[str, NumTokens], nature: str, is_cheap: bool) -> None:
    server = Server(num_tokens_by[nature])
    maker, _ = server.maker("prose", is_cheap=is_cheap)
    one = asyncio.run(maker.make(2_000))
    same = asyncio.run(maker.same_body(one))
    assert server.send(same) == same.expected_len == server.send(one)


@pytest.mark.parametrize("is_cheap", [True, False])
def test_seeds_decide_the_prompts(is_cheap: bool) -> None:
    def prompts(**options: Any) -> list[str]:
        maker, _ = Server(pieces_of_8).maker("prose", is_cheap=is_cheap, **options)
        return [asyncio.run(maker.make(length)).sha256 for length in (400, 400, 900)]

    assert prompts() == prompts()
    assert not set(prompts()) & set(prompts(seed=5))
    assert not set(prompts()) & set(prompts(head_seed=5))


def test_a_body_can_be_made_again_by_its_index() -> None:
    server = Server(pieces_of_8)
    maker, _ = server.maker("prose", is_cheap=True)
    bodies = [asyncio.run(maker.make(400, body_index=index)) for index in (0, 1, 0)]
    texts = [(prompt.text or "")[len(prompt.head) :][:500] for prompt in bodies]
    assert texts[0] == texts[2] != texts[1]


# Too short


@pytest.mark.parametrize("is_cheap", [True, False])
@pytest.mark.parametrize("kind", ["prose", "code"])
def test_the_shortest_prompt_is_made_and_a_shorter_one_names_it(kind: str, is_cheap: bool) -> None:
    server = Server(pieces_of_8, 211)
    maker, _ = server.maker(kind, is_cheap=is_cheap)
    min_len = asyncio.run(maker.calibrate()).min_len
    assert 211 + 20 < min_len < 211 + 40
    assert server.send(asyncio.run(maker.make(min_len))) == min_len
    with pytest.raises(UsageError, match=f"too short: {min_len} go to") as caught:
        asyncio.run(maker.make(min_len - 1))
    assert str(min_len) in (caught.value.hint or "")


# Who counts


def test_a_tokenizer_of_another_model_is_said_and_not_used() -> None:
    server = Server(pieces_of_8)
    usage = UsageCounter(server.probe)

    async def finer(text: str) -> int:
        return 3 * pieces_of_8(text)

    maker = PromptMaker(
        source_of("prose"), seed=1, probe=usage, counter=EndpointCounter(finer, source="local tokenizer")
    )
    calibration = asyncio.run(maker.calibrate())
    assert calibration.count_source == "usage probes"
    assert calibration.mismatch_frac is not None
    assert calibration.mismatch_frac > 0.02
    (note,) = calibration.notes
    assert re.fullmatch(r"the local tokenizer counts \d+ tokens where the server counts \d+: it is not used", note)
    assert server.send(asyncio.run(maker.make(2_000))) == 2_000


def test_without_usage_a_tokenizer_of_another_model_is_all_there_is_and_the_doubt_is_said() -> None:
    server = Server(pieces_of_8)
    maker = PromptMaker(source_of("prose"), seed=1, counter=EndpointCounter(server.tokenize))
    calibration = asyncio.run(maker.calibrate())
    assert calibration.overhead_len is None
    assert calibration.mismatch_frac is None
    assert "without the chat template" in calibration.notes[0]
    prompt = asyncio.run(maker.make(1_000))
    assert server.num_tokens(prompt.text or "") == 1_000
    assert prompt.overhead_len is None


def test_an_endpoint_that_counts_the_template_too_needs_no_usage() -> None:
    server = Server(pieces_of_8, 211)

    async def whole(text: str) -> int:
        return server.prompt_len(text)

    counter = EndpointCounter(whole, includes_template=True)
    for probe in (None, UsageCounter(server.probe)):
        maker = PromptMaker(source_of("prose"), seed=1, probe=probe, counter=counter)
        calibration = asyncio.run(maker.calibrate())
        assert (calibration.overhead_len, calibration.notes) == (211, ())
        assert server.send(asyncio.run(maker.make(1_000))) == 1_000


@pytest.mark.parametrize("nature", TRAINED)
def test_a_local_tokenizer_of_the_right_model_is_used(
    num_tokens_by: dict[str, NumTokens], trained: dict[str, Path], nature: str
) -> None:
    server = Server(num_tokens_by[nature], 211)
    maker = PromptMaker(
        source_of("code"), seed=1, probe=UsageCounter(server.probe), counter=LocalTokenizer(trained[nature])
    )
    calibration = asyncio.run(maker.calibrate())
    assert (calibration.count_source, calibration.overhead_len) == ("local tokenizer", 211)
    for asked_len in (1_000, 60_010):
        assert server.send(asyncio.run(maker.make(asked_len))) == asked_len


def test_nothing_that_counts_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing counts tokens") as caught:
        PromptMaker(source_of("prose"), seed=1)
    assert "--tokenizer" in (caught.value.hint or "")


def test_a_failing_probe_is_not_hidden() -> None:
    async def probe(text: str) -> int:
        raise HttpStatus(503, "overloaded")

    maker = PromptMaker(source_of("prose"), seed=1, probe=UsageCounter(probe))
    with pytest.raises(HttpStatus, match="overloaded"):
        asyncio.run(maker.make(1_000))


# Feedback and truncation


@pytest.mark.parametrize("is_cheap", [True, False])
def test_a_count_that_was_off_corrects_later_prompts_of_its_length(is_cheap: bool) -> None:
    """The server adds three tokens more than it did while it was probed."""
    server = Server(pieces_of_8)
    maker, _ = server.maker("prose", is_cheap=is_cheap)
    asyncio.run(maker.calibrate())
    server.template_len += 3
    prompt = asyncio.run(maker.make(1_000))
    assert server.send(prompt) == 1_003
    assert asyncio.run(maker.feedback(prompt, 1_003))
    corrected = asyncio.run(maker.make(1_000))
    assert server.send(corrected) == corrected.expected_len == 1_000
    assert asyncio.run(maker.feedback(corrected, 1_000))
    assert server.send(asyncio.run(maker.make(1_000))) == 1_000
    assert server.send(asyncio.run(maker.make(2_000))) == 2_003


@pytest.mark.parametrize("is_cheap", [True, False])
def test_a_truncated_prompt_teaches_nothing(is_cheap: bool) -> None:
    server = Server(pieces_of_8, truncates_at=4_096)
    maker, _ = server.maker("prose", is_cheap=is_cheap)
    prompt = asyncio.run(maker.make(8_192))
    assert (prompt.expected_len, prompt.is_exact) == (8_192, True)
    actual_len = server.send(prompt)
    assert actual_len == 4_096
    assert not asyncio.run(maker.feedback(prompt, actual_len))
    assert asyncio.run(maker.make(8_192)).expected_len == 8_192


def test_a_prompt_that_was_truncated_while_it_was_tried_is_not_called_exact() -> None:
    server = Server(quarter_chars, truncates_at=4_096)
    maker, _ = server.maker("prose", is_cheap=False)
    prompt = asyncio.run(maker.make(8_192))
    assert (prompt.expected_len, prompt.is_exact) == (4_096, False)


# Token ids


def id_route(server: Server, folder: Path, *, overhead_len: int = 0, status: int = 200) -> IdRoute:
    made = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))

    async def tokenize(text: str) -> list[int]:
        server.counted_chars += len(text)
        ids: list[int] = made.encode(text).ids  # with BOS
        return ids

    async def probe(ids: Sequence[int]) -> int:
        if status != 200:
            raise HttpStatus(status, "prompt must be a string")
        server.texts.append(made.decode(list(ids)))
        return len(ids) + overhead_len

    return IdRoute(tokenize, probe)


@pytest.mark.parametrize("overhead_len", [0, 1])
@pytest.mark.parametrize("nature", TRAINED)
def test_token_ids_are_cut_to_length(
    num_tokens_by: dict[str, NumTokens], trained: dict[str, Path], nature: str, overhead_len: int
) -> None:
    server = Server(num_tokens_by[nature])
    route = id_route(server, trained[nature], overhead_len=overhead_len)
    maker = PromptMaker(source_of("prose"), seed=1, head_seed=2, id_route=route)
    calibration = asyncio.run(maker.calibrate())
    assert (calibration.count_source, calibration.num_probes) == ("token ids", 1)
    assert calibration.overhead_len == overhead_len + 1  # BOS is in the ids
    firsts = set()
    for asked_len in (calibration.min_len, 100, 1_000, 60_010):
        prompt = asyncio.run(maker.make(asked_len))
        assert prompt.ids is not None
        assert prompt.text is None
        assert len(prompt.ids) + overhead_len == asked_len == prompt.expected_len
        assert prompt.ids[0] == 1
        assert prompt.form == "ids"
        same = asyncio.run(maker.same_body(prompt))
        assert same.ids is not None
        assert len(same.ids) == len(prompt.ids)
        assert same.ids[20:] == prompt.ids[20:]
        firsts |= {prompt.ids[1], same.ids[1]}
    assert len(firsts) == 8
    with pytest.raises(UsageError, match="too short"):
        asyncio.run(maker.make(calibration.min_len - 1))


def test_a_server_that_refuses_ids_gets_text(num_tokens_by: dict[str, NumTokens], trained: dict[str, Path]) -> None:
    nature = "byte-level BPE"
    server = Server(num_tokens_by[nature])
    maker = PromptMaker(
        source_of("prose"),
        seed=1,
        probe=UsageCounter(server.probe),
        counter=EndpointCounter(server.tokenize),
        id_route=id_route(server, trained[nature], status=400),
    )
    calibration = asyncio.run(maker.calibrate())
    assert calibration.count_source == "server tokenize endpoint"
    assert "prompt must be a string" in calibration.notes[0]
    assert server.send(asyncio.run(maker.make(1_000))) == 1_000


def test_a_server_that_is_overloaded_has_not_refused_ids(
    num_tokens_by: dict[str, NumTokens], trained: dict[str, Path]
) -> None:
    server = Server(num_tokens_by["byte-level BPE"])
    route = id_route(server, trained["byte-level BPE"], status=503)
    maker = PromptMaker(source_of("prose"), seed=1, probe=UsageCounter(server.probe), id_route=route)
    with pytest.raises(HttpStatus):
        asyncio.run(maker.calibrate())


# Needles


@pytest.mark.parametrize("depth_frac", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("kind", ["prose", "code", "repeat"])
@pytest.mark.parametrize("nature", ["pieces of 8", "byte-level BPE", "characters / 4"])
@pytest.mark.parametrize("is_cheap", [True, False])
def test_a_needle_stands_at_its_depth_and_the_length_stays(
    num_tokens_by: dict[str, NumTokens], nature: str, kind: str, depth_frac: float, is_cheap: bool
) -> None:
    server = Server(num_tokens_by[nature])
    maker, _ = server.maker(kind, is_cheap=is_cheap)
    hidden = needle(4, depth_frac)
    prompt = asyncio.run(maker.make(4_000, needle=hidden))
    assert prompt.text is not None
    assert abs(server.send(prompt) - 4_000) <= (0 if is_cheap else 2)
    assert prompt.text.count(hidden.fact) == 1
    assert prompt.text.endswith(hidden.question)
    assert abs(prompt.text.index(hidden.fact) / len(prompt.text) - depth_frac) < 0.1
    same = asyncio.run(maker.same_body(prompt))
    assert same.needle == hidden
    assert abs(server.send(same) - 4_000) <= (0 if is_cheap else 2)


def test_the_capability_check_of_sixty_thousand_tokens(
    num_tokens_by: dict[str, NumTokens], trained: dict[str, Path]
) -> None:
    """60,010 tokens with a question whose answer is one word."""
    nature = "byte-level BPE"
    made = tokenizers.Tokenizer.from_file(str(trained[nature] / "tokenizer.json"))
    made.decoder = tokenizers.decoders.ByteLevel()
    server = Server(num_tokens_by[nature])
    dog = Needle(word="Dog", depth_frac=0.3)
    by_text, _ = server.maker("prose", is_cheap=True)
    by_ids = PromptMaker(source_of("prose"), seed=1, id_route=id_route(server, trained[nature]))
    text = asyncio.run(by_text.make(60_010, needle=dog)).text or ""
    ids = asyncio.run(by_ids.make(60_010, needle=dog)).ids or ()
    assert server.prompt_len(text) == len(ids) == 60_010
    for told in (text, made.decode(list(ids))):
        assert told.count("The secret word is Dog.") == 1
        assert abs(told.index(dog.fact) / len(told) - 0.3) < 0.03
        assert told.endswith(dog.question)
        assert not check(told.replace(dog.fact, ""), dog)
    assert check("Dog.", dog)


# What is said of a prompt


def test_a_prompt_says_what_it_is(tmp_path: Path) -> None:
    server = Server(pieces_of_8)
    for kind, is_repetitive, is_random in (
        ("prose", False, False),
        ("repeat", True, False),
        ("random", False, True),
    ):
        maker, _ = server.maker(kind, is_cheap=True)
        prompt = asyncio.run(maker.make(600))
        assert (prompt.text_kind, prompt.is_repetitive, prompt.is_random) == (kind, is_repetitive, is_random)
        assert prompt.notes == ()
    facts = asyncio.run(maker.make(600, needle=needle(1, 0.5))).facts
    assert (facts.asked_len, facts.expected_len, facts.overhead_len, facts.form) == (600, 600, 7, "text")
    assert (facts.text_kind, facts.is_random, facts.needle) == ("random", True, needle(1, 0.5).word)
    assert facts.head
    assert len(facts.sha256 or "") == 64


@pytest.mark.parametrize("is_cheap", [True, False])
def test_a_file_shorter_than_the_prompt_is_named_as_repetitive(tmp_path: Path, is_cheap: bool) -> None:
    path = tmp_path / "notes.txt"
    sentences = text_source("prose").pieces(3)
    path.write_text("\n".join(next(sentences).strip() for _ in range(60)), encoding="utf-8")
    server = Server(pieces_of_8)
    maker, _ = server.maker(f"file:{path}", is_cheap=is_cheap)
    short, long = (asyncio.run(maker.make(length)) for length in (400, 4_000))
    assert (server.send(short), server.send(long)) == (400, 4_000)
    assert (short.text_kind, short.is_repetitive, short.notes) == ("file", False, ())
    assert long.is_repetitive
    assert re.fullmatch(r"the file notes.txt is shorter than the prompt and stands in it \d\.\d times", long.notes[0])


def test_calibration_is_done_once_and_tells_its_bill() -> None:
    server = Server(pieces_of_8)
    maker, usage = server.maker("prose", is_cheap=False)

    async def twice() -> tuple[Calibration, Calibration]:
        return await maker.calibrate(), await maker.calibrate()

    one, again = asyncio.run(twice())
    assert one is again
    assert (one.num_probes, one.num_probed_tokens) == (usage.num_probes, usage.num_probed_tokens)
    assert one.num_head_words > 400
