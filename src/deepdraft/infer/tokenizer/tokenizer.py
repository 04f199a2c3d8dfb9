"""A model's vocabulary: text to token ids and back, and its chat template.

One class over the `tokenizers` library, whatever file it was filled from (`folder.py`, `gguf_bpe.py`). Text that is
streamed token by token is `detokenizer`'s work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers

from deepdraft.infer.errors import InvalidRequest
from deepdraft.infer.tokenizer.chat_template import ChatTemplate
from deepdraft.infer.tokenizer.token_bytes import byte_level_bytes, is_byte_level, sentencepiece_bytes


class Tokenizer:
    """Text <-> token ids. Safe to use from several threads: nothing changes after it is built."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        bos_token_id: int | None = None,
        eos_token_ids: Sequence[int] = (),
        adds_bos: bool | None = None,
        chat_templates: Mapping[str, str] | None = None,
        special_tokens: Mapping[str, str] | None = None,
    ) -> None:
        """`adds_bos`: whether `add_special` puts the BOS token first; None: the vocabulary's own post-processor
        decides. `special_tokens`: the texts a chat template may name (`bos_token`, `eos_token` ...)."""
        backend.no_truncation()  # a tokenizer.json may have been saved with the limits of a training run
        backend.no_padding()
        self._backend = backend
        self._adds_bos = adds_bos
        self._templates = {
            name: ChatTemplate(source, special_tokens or {}) for name, source in (chat_templates or {}).items()
        }
        self._vocab_size = int(backend.get_vocab_size(with_added_tokens=True))
        self._special_ids = frozenset(
            token_id for token_id, token in backend.get_added_tokens_decoder().items() if token.special
        )
        self._is_byte_level = is_byte_level(backend)
        self._bos_token_id = bos_token_id
        self._eos_token_ids = tuple(dict.fromkeys(eos_token_ids))

    @property
    def vocab_size(self) -> int:
        """How many tokens there are. The model's own may be larger: its embedding is often padded."""
        return self._vocab_size

    @property
    def bos_token_id(self) -> int | None:
        """The token that begins a text; None where the model has none."""
        return self._bos_token_id

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """The tokens that end an answer: the model config's, the generation config's and the tokenizer's own."""
        return self._eos_token_ids

    @property
    def is_byte_level(self) -> bool:
        """Each token is a fixed run of bytes, so text can be put together without decoding anything twice."""
        return self._is_byte_level

    @property
    def has_chat_template(self) -> bool:
        """Whether `chat` can be used."""
        return bool(self._templates)

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """Token ids. Special tokens written out in the text become those tokens. `add_special` adds what the model's
        files say every text begins with (BOS, or nothing); leave it off for text that `chat` made.

        Raises InvalidRequest for a string that is no Unicode text (JSON can hold half a surrogate pair).
        """
        is_by_post_processor = add_special and self._adds_bos is None
        try:
            # As a batch of one, which leaves the interpreter to other threads: `encode` holds it for seconds.
            (encoding,) = self._backend.encode_batch_fast([text], add_special_tokens=is_by_post_processor)
        except TypeError as error:  # what the library makes of such a string
            raise InvalidRequest("prompt", "the text holds half a surrogate pair: it is no Unicode text") from error
        token_ids = list(encoding.ids)
        if add_special and self._adds_bos and self._bos_token_id is not None:
            token_ids.insert(0, self._bos_token_id)
        return token_ids

    def decode(self, token_ids: Sequence[int], *, skip_special: bool) -> str:
        """The text of all tokens together. Bytes that are no UTF-8 become U+FFFD; unknown ids become nothing."""
        return str(self._backend.decode(list(token_ids), skip_special_tokens=skip_special))

    def is_special(self, token_id: int) -> bool:
        """Whether the token is one that `decode` leaves out with skip_special."""
        return token_id in self._special_ids

    def token_text(self, token_id: int) -> str:
        """One token alone, special or not; part of a character becomes U+FFFD (`token_bytes` has the bytes)."""
        return self.token_bytes(token_id).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token alone, special or not; none for an unknown id."""
        token = self._backend.id_to_token(token_id)
        if token is None:
            return b""
        return byte_level_bytes(token) if self._is_byte_level else sentencepiece_bytes(token)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **template_values: Any,
    ) -> str:
        """A conversation as the text the model was trained on, its special tokens written out.

        Raises InvalidRequest where the model has no chat template, or the template refuses the messages.
        """
        if not self._templates:
            raise InvalidRequest(
                "messages", "this model has no chat template", hint="send the text itself to /v1/completions"
            )
        name = "tool_use" if tools and "tool_use" in self._templates else "default"
        if name not in self._templates:
            raise InvalidRequest(
                "messages", f"this model has no default chat template, only {', '.join(sorted(self._templates))}"
            )
        return self._templates[name].render(
            messages, add_generation_prompt=add_generation_prompt, tools=tools, **template_values
        )
