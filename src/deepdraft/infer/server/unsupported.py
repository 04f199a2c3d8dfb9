"""Fields that other servers obey, that change the output or what is measured, and that this one does not have.

To ignore them would give an answer that is not what was asked for. A value that changes nothing (`logit_bias: {}`,
`min_p: 0`) passes. Every other unknown field is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from deepdraft.infer.server.body import decoded
from deepdraft.infer.server.refusal import Refused

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "allowed_token_ids": (),
    "audio": (),
    "bad_words": ([],),
    "cache_prompt": (True,),
    "cache_salt": ("",),
    "chat_template": (),
    "continue_final_message": (False,),
    "documents": ([],),
    "dry_multiplier": (0,),
    "ebnf": (),
    "extra_key": ("",),
    "function_call": ("none",),
    "functions": ([],),
    "grammar": ("",),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "include_stop_str_in_output": (False,),
    "json_schema": (),
    "length_penalty": (1,),
    "logit_bias": ({}, []),
    "logits_processors": ([],),
    "lora_path": (),
    "min_p": (0,),
    "mirostat": (0,),
    "modalities": (["text"],),
    "n_predict": (),
    "prompt_embeds": (),
    "prompt_logprobs": (0,),
    "reasoning_effort": ("none",),
    "regex": (),
    "repeat_penalty": (1,),
    "response_format": ({"type": "text"},),
    "skip_special_tokens": (True,),
    "structured_outputs": (),
    "suffix": ("",),
    "top_a": (0,),
    "truncate_prompt_tokens": (),
    "typical_p": (1,),
    "use_beam_search": (False,),
    "xtc_probability": (0,),
}
"""Field -> values that change nothing; null never does."""


def check_unsupported(body: bytes) -> None:
    """Raises Refused (400), naming the field."""
    fields: Mapping[str, msgspec.Raw] = decoded(body, dict[str, msgspec.Raw])
    for name in fields.keys() & _NEUTRAL.keys():
        value: Any = decoded(bytes(fields[name]), object)
        if value is not None and value not in _NEUTRAL[name]:
            raise Refused(
                400,
                f"{name} is not supported by this server: leave it out",
                param=name,
                code="unsupported_parameter",
            )
