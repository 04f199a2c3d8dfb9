"""The byte-level BPE vocabulary: training it, and wrapping it as the tokenizer folder others load.

Pieces are cut so that a line break with the next line's indentation is one piece (often one token), a word may carry
one sign or space in front, and digits come in threes at most. All 256 bytes are in the vocabulary: any text round
trips. Leaves out the choice of text: see `corpus`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from training.embedded.recipe import BEGIN, CHAT_TEMPLATE, END, SPECIAL_TOKENS, VOCAB_SIZE

_PIECES = "|".join(
    (
        r"(?:[ \t]*\r?\n)+[ \t]*",  # blank lines, the break, and the indentation that follows
        r"[^\r\n\p{L}\p{N}]?\p{L}+",  # a word with one sign before it: .join, (self, _name
        r" ?\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+",  # signs
        r"[ \t]+(?=[^\s])|\s+",
    )
)


def train_vocabulary(texts: Iterable[str], vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    """A byte-level BPE of `vocab_size` entries, special tokens first, trained on `texts` alone."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def wrapped(tokenizer: Tokenizer, max_positions: int) -> PreTrainedTokenizerFast:
    """The vocabulary as transformers' tokenizer, with roles and chat template; `encode` adds no token of its own."""
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        bos_token=BEGIN,
        eos_token=END,
        pad_token=END,
        additional_special_tokens=[token for token in SPECIAL_TOKENS if token not in (BEGIN, END)],
        model_max_length=max_positions,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )
