"""Log probabilities of chosen tokens, in the two forms that OpenAI's routes give them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepdraft.infer.request import TokenLogprob
from deepdraft.infer.tokenizer.tokenizer import Tokenizer


def chat_logprobs(logprobs: Sequence[TokenLogprob], tokenizer: Tokenizer) -> dict[str, Any]:
    """`choices[].logprobs` of /v1/chat/completions."""
    content = [
        {
            **_entry(chosen.token_id, chosen.logprob, tokenizer),
            "top_logprobs": [_entry(token_id, logprob, tokenizer) for token_id, logprob in chosen.alternatives],
        }
        for chosen in logprobs
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(logprobs: Sequence[TokenLogprob], tokenizer: Tokenizer, *, offset: int) -> dict[str, Any]:
    """`choices[].logprobs` of /v1/completions. `offset`: where the first token's text begins, in characters.

    Offsets are those of the tokens' own texts put together, as OpenAI's are.
    """
    texts = [tokenizer.token_text(chosen.token_id) for chosen in logprobs]
    offsets = []
    for text in texts:
        offsets.append(offset)
        offset += len(text)
    top = [
        {tokenizer.token_text(token_id): logprob for token_id, logprob in chosen.alternatives} for chosen in logprobs
    ]
    return {
        "tokens": texts,
        "token_logprobs": [chosen.logprob for chosen in logprobs],
        "top_logprobs": top,
        "text_offset": offsets,
    }


def _entry(token_id: int, logprob: float, tokenizer: Tokenizer) -> dict[str, Any]:
    content = tokenizer.token_bytes(token_id)
    return {"token": content.decode(errors="replace"), "logprob": logprob, "bytes": list(content)}
