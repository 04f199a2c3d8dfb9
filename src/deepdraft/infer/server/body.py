"""Request bodies: read within a limit, decoded into what a route takes, refused in words that name the field."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
from starlette.requests import Request

from deepdraft.infer.server.refusal import Refused

T = TypeVar("T")
_PATH = re.compile(r"^(?P<words>.*) - at `\$\.?(?P<path>[^`]*)`$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<field>[^`]+)`$")


async def read_body(request: Request, max_body_bytes: int) -> bytes:
    """The whole body. Raises Refused (413) beyond the limit, before the rest is read.

    Raises starlette's ClientDisconnect when the client goes away in the middle.
    """
    stated = request.headers.get("content-length", "")
    if stated.isdigit() and int(stated) > max_body_bytes:
        raise _too_large(max_body_bytes)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > max_body_bytes:
            raise _too_large(max_body_bytes)
    return bytes(body)


def decoded(body: bytes, kind: type[T]) -> T:
    """The body as `kind`. Raises Refused (400), naming the field, for anything else."""
    try:
        body.decode()
        return msgspec.json.decode(body, type=kind)
    except UnicodeDecodeError as error:
        raise Refused(400, f"the body is not valid UTF-8: byte {error.start}") from None
    except msgspec.ValidationError as error:
        raise _wrong(str(error)) from None
    except msgspec.DecodeError as error:
        raise Refused(400, f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise Refused(400, "the body is nested too deeply") from None


def _wrong(words: str) -> Refused:
    placed = _PATH.match(words)
    path = placed["path"] if placed else ""
    words = placed["words"] if placed else words
    missing = _MISSING.match(words)
    if missing:
        field = f"{path}.{missing['field']}" if path else missing["field"]
        return Refused(400, f"{field} is required", param=field)
    return Refused(400, f"{path}: {words}" if path else f"the body: {words}", param=path or None)


def _too_large(max_body_bytes: int) -> Refused:
    return Refused(413, f"the body is larger than the limit of {max_body_bytes} bytes", code="body_too_large")
