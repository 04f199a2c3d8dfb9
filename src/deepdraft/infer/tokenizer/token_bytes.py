"""The bytes that one token stands for, in the two ways vocabularies are written.

Byte-level BPE (GPT-2) writes every byte as one printable character, so a token is a fixed run of bytes whatever
stands beside it. SentencePiece writes a space as ▁ and a byte without a token of its own as <0x0A>.
"""

from __future__ import annotations

import json
import re

import tokenizers

_PRINTABLE = (*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1))
_UNPRINTABLE = (byte for byte in range(256) if byte not in _PRINTABLE)
_BYTE_OF_CHARACTER = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(256 + rank): byte for rank, byte in enumerate(_UNPRINTABLE)
}

_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_level_bytes(token: str) -> bytes:
    """The bytes a token stands for. One with a character outside the alphabet (an added token) stands for itself."""
    try:
        return bytes([_BYTE_OF_CHARACTER[character] for character in token])
    except KeyError:
        return token.encode()


def sentencepiece_bytes(token: str) -> bytes:
    """The bytes of a SentencePiece token where others stand before it (the first of a text loses its space)."""
    byte = _FALLBACK.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace("▁", " ").encode()


def is_byte_level(backend: tokenizers.Tokenizer) -> bool:
    """Whether the vocabulary's decoder does nothing but put bytes together."""
    if backend.decoder is None:
        return False
    return bool(json.loads(backend.decoder.__getstate__())["type"] == "ByteLevel")
