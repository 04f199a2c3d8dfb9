"""A tokenizer from a Hugging Face folder: tokenizer.json, tokenizer_config.json and the chat templates' files.

Only what the `tokenizers` library reads; a folder with a SentencePiece or tiktoken vocabulary alone is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from deepdraft.errors import UsageError
from deepdraft.infer.tokenizer.tokenizer import Tokenizer

_SPECIAL_TOKEN_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_CONVERT_HINT = "load it once with transformers' AutoTokenizer and save it: save_pretrained writes tokenizer.json"


def folder_tokenizer(folder: Path, eos_token_ids: Sequence[int]) -> Tokenizer:
    """The folder's tokenizer; `eos_token_ids` are the model config's, joined by the tokenizer's own `eos_token`.

    Raises UsageError where the files are missing or can't be read.
    """
    backend = _backend(folder / "tokenizer.json")
    stated = _stated(folder / "tokenizer_config.json")
    special_tokens = _special_tokens(stated)
    ids = {name: backend.token_to_id(text) for name, text in special_tokens.items()}
    # The config may name a token special that tokenizer.json has as an ordinary one; a new one would have no weights.
    named = [*special_tokens.values(), *_extra_special_tokens(stated)]
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    known = [text for text in named if text not in special and backend.token_to_id(text) is not None]
    backend.add_special_tokens([AddedToken(text, normalized=False) for text in known])
    own_eos = ids.get("eos_token")
    adds_bos = stated.get("add_bos_token")
    return Tokenizer(
        backend,
        bos_token_id=ids.get("bos_token"),
        eos_token_ids=[*eos_token_ids, *([] if own_eos is None else [own_eos])],
        adds_bos=adds_bos if isinstance(adds_bos, bool) else None,
        chat_templates=_chat_templates(folder, stated),
        special_tokens=special_tokens,
    )


def _backend(path: Path) -> tokenizers.Tokenizer:
    if not path.is_file():
        raise UsageError(f"no tokenizer in {path.parent}: tokenizer.json is missing", hint=_CONVERT_HINT)
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower class
        raise UsageError(f"{path} is not a tokenizer: {error}") from error


def _stated(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        stated = json.loads(path.read_bytes())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    if not isinstance(stated, dict):
        raise UsageError(f"{path} is not a tokenizer's config: not a JSON object")
    return stated


def _special_tokens(stated: Mapping[str, Any]) -> dict[str, str]:
    """A special token is written as its text, or as an object with its text under `content`."""
    values = {name: stated.get(name) for name in _SPECIAL_TOKEN_NAMES}
    texts = {name: value.get("content") if isinstance(value, dict) else value for name, value in values.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str) and text}


def _extra_special_tokens(stated: Mapping[str, Any]) -> list[str]:
    """Those without a role of their own; transformers 5 has another name for the list."""
    lists = (stated.get("additional_special_tokens"), stated.get("extra_special_tokens"))
    return [text for listed in lists if isinstance(listed, list) for text in listed if isinstance(text, str)]


def _chat_templates(folder: Path, stated: Mapping[str, Any]) -> dict[str, str]:
    """Files of their own come before what tokenizer_config.json holds: one text, or a list of named ones."""
    files = {path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    if (folder / "chat_template.jinja").is_file():
        files["default"] = folder / "chat_template.jinja"
    if files:
        return {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    held = stated.get("chat_template")
    if isinstance(held, str):
        return {"default": held}
    if isinstance(held, list):
        named = [entry for entry in held if isinstance(entry, dict)]
        return {str(entry.get("name")): str(entry["template"]) for entry in named if "template" in entry}
    return {}
