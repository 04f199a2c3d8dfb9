from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers

from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.embedded import embedded_model_path
from deepdraft.infer.checkpoint.open import open_checkpoint
from deepdraft.infer.tokenizer.detokenizer import Detokenizer
from deepdraft.infer.tokenizer.tokenizer import Tokenizer

TEXTS = [
    "The capital of France is Paris.",
    "def f(x):\n    return x  # → ☃ naïve\n",
    "日本語テキスト 한국어 العربية हिन्दी",
    "👨‍👩‍👧‍👦🏳️‍🌈 e\u0301 😀😀",
]


@pytest.fixture(scope="module")
def embedded() -> Tokenizer:
    try:
        return open_checkpoint(embedded_model_path()).tokenizer()
    except UsageError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=["smollm2", "embedded"])
def byte_level(request: pytest.FixtureRequest) -> Tokenizer:
    found: Tokenizer = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module", params=["smollm2", "embedded", "byte fallback"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param == "byte fallback":
        return byte_fallback()
    found: Tokenizer = request.getfixturevalue(request.param)
    return found


def byte_fallback() -> Tokenizer:
    """A vocabulary of SentencePiece's form: ▁ for spaces, characters without a token as bytes."""
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        "▁a",
        "a",
        "b",
        "e",
        "é",
        "日",
    ]
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[("▁", "a")], byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens([AddedToken(text, normalized=False) for text in ("<unk>", "<s>", "</s>")])
    return Tokenizer(backend, bos_token_id=1, eos_token_ids=(2,))


def streamed(
    tokenizer: Tokenizer, token_ids: list[int], stop: tuple[str, ...] = (), *, skip_special: bool = True
) -> str:
    detokenizer = Detokenizer(tokenizer, stop, skip_special=skip_special)
    pieces = [detokenizer.push(token_id) for token_id in token_ids]
    return "".join(pieces) + detokenizer.finish()


@pytest.mark.parametrize("skip_special", [True, False])
@settings(deadline=None, max_examples=150)
@given(seeds=st.lists(st.integers(0, 2**32 - 1), max_size=40))
def test_the_pieces_make_the_whole(byte_level: Tokenizer, skip_special: bool, seeds: list[int]) -> None:
    # Random ids are mostly whole words; every other one from the first 300, where bytes and special tokens are.
    token_ids = [seed % (300 if seed % 2 else byte_level.vocab_size) for seed in seeds]
    whole = byte_level.decode(token_ids, skip_special=skip_special)
    assert streamed(byte_level, token_ids, skip_special=skip_special) == whole


@settings(deadline=None, max_examples=100)
@given(token_ids=st.lists(st.integers(0, 300), max_size=30), data=st.data())
def test_a_stop_string_ends_the_text_wherever_tokens_end(
    smollm2: Tokenizer, token_ids: list[int], data: st.DataObject
) -> None:
    whole = smollm2.decode(token_ids, skip_special=True)
    start = data.draw(st.integers(0, len(whole)))
    stop = whole[start : start + data.draw(st.integers(1, 8))] or "never"
    before, _, _ = whole.partition(stop)
    assert streamed(smollm2, token_ids, (stop,)) == before


def test_real_text_comes_back(tokenizer: Tokenizer) -> None:
    for text in TEXTS:
        token_ids = tokenizer.encode(text, add_special=False)
        assert streamed(tokenizer, token_ids) == tokenizer.decode(token_ids, skip_special=True) == text


def test_only_whole_characters_are_handed_out(tokenizer: Tokenizer) -> None:
    text = "".join(TEXTS)
    detokenizer = Detokenizer(tokenizer)
    for token_id in tokenizer.encode(text, add_special=False):
        piece = detokenizer.push(token_id)
        assert "\ufffd" not in piece
        assert text.startswith(piece)
        text = text.removeprefix(piece)
    assert text == detokenizer.finish() == ""


def test_a_character_comes_with_its_last_byte(smollm2: Tokenizer) -> None:
    token_ids = smollm2.encode("😀", add_special=False)
    assert len(token_ids) > 1
    detokenizer = Detokenizer(smollm2)
    assert [detokenizer.push(token_id) for token_id in token_ids] == [""] * (len(token_ids) - 1) + ["😀"]


def test_an_unfinished_character_ends_as_decode_has_it(smollm2: Tokenizer) -> None:
    token_ids = smollm2.encode("so 😀", add_special=False)[:-1]
    assert streamed(smollm2, token_ids) == smollm2.decode(token_ids, skip_special=True) == "so \ufffd"


def test_a_stop_string_within_a_token_and_across_tokens(smollm2: Tokenizer) -> None:
    token_ids = smollm2.encode("one two three four", add_special=False)
    detokenizer = Detokenizer(smollm2, ("wo thr",))
    pieces = [detokenizer.push(token_id) for token_id in token_ids]
    assert pieces == ["one", " t", "", ""]
    assert detokenizer.stopped
    assert detokenizer.stop_string == "wo thr"
    assert detokenizer.finish() == ""


def test_what_looked_like_a_stop_string_comes_in_the_end(smollm2: Tokenizer) -> None:
    detokenizer = Detokenizer(smollm2, ("two thirds",))
    pieces = [detokenizer.push(token_id) for token_id in smollm2.encode("one two th", add_special=False)]
    assert "".join(pieces) == "one "
    assert detokenizer.finish() == "two th"
    assert not detokenizer.stopped


def test_before_min_tokens_a_stop_string_is_just_text(smollm2: Tokenizer) -> None:
    token_ids = smollm2.encode("stop stop stop", add_special=False)
    detokenizer = Detokenizer(smollm2, ("stop",))
    pieces = [detokenizer.push(token_id, can_stop=place >= 2) for place, token_id in enumerate(token_ids)]
    assert pieces == ["stop", " stop", " "]
    assert detokenizer.stopped


def test_garbage_bytes_do_not_hold_the_text_back() -> None:
    tokenizer = byte_fallback()
    token_ids = [3 + 0xE3] * 50
    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.push(token_id) for token_id in token_ids]
    assert "".join(pieces) + detokenizer.finish() == tokenizer.decode(token_ids, skip_special=True) == "\ufffd" * 50
    assert len("".join(pieces)) > 40


def test_the_window_stays_small() -> None:
    tokenizer = byte_fallback()
    detokenizer = Detokenizer(tokenizer)
    for token_id in tokenizer.encode("a日é b" * 50, add_special=False):
        detokenizer.push(token_id)
        assert len(detokenizer._stream._window) <= 16  # type: ignore[attr-defined]


def test_a_space_of_sentencepiece_is_not_lost() -> None:
    tokenizer = byte_fallback()
    for text in ("a a", " a", "a  a", "b a b"):
        token_ids = tokenizer.encode(text, add_special=False)
        assert streamed(tokenizer, token_ids) == tokenizer.decode(token_ids, skip_special=True) == text


def test_unknown_ids_give_nothing(smollm2: Tokenizer) -> None:
    # A padded embedding can have them sampled.
    for tokenizer in (byte_fallback(), smollm2):
        assert streamed(tokenizer, [261, 99_999, 262]) == tokenizer.decode([261, 262], skip_special=True)
