"""What went wrong on the way to a server, in words that say what to do.

Turns the exceptions of sockets, name look-up and TLS into the errors of `deepdraft.errors`; decides nothing.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl

from deepdraft.errors import Unreachable
from deepdraft.transport.endpoint import Endpoint

_ERRNO_IN_TEXT = re.compile(r"\[Errno (-?\d+)\]")
_HINTS = {
    errno.ECONNREFUSED: "nothing listens there: is the server up, and is the port right?",
    errno.EHOSTUNREACH: "is the host right, and reachable from here?",
    errno.ENETUNREACH: "is the network up, and the host reachable from here?",
}


def words(error: BaseException) -> str:
    """What the system or the TLS library says, in one line without Python's decoration."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(tls_reason(error) or str(error)).replace('_', ' ').lower()}"
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    said = [os.strerror(number) for number in _numbers(error)]
    return ", ".join(dict.fromkeys(said)) or str(error) or type(error).__name__


def tls_reason(error: ssl.SSLError) -> str | None:
    """OpenSSL's name of what went wrong; an error that Python itself raised has none, not even the field."""
    return getattr(error, "reason", None)


def unreachable(endpoint: Endpoint, error: OSError) -> Unreachable:
    """Nobody could be spoken to: names the address, the system's words, and a hint where there is one."""
    return Unreachable(f"can't reach {endpoint.address}: {words(error)}", hint=_hint(endpoint, error))


def no_answer(endpoint: Endpoint, request: str, fault: str | None, *, has_answered: bool) -> Unreachable:
    """The connection stood and ended before the first byte of an answer; `fault` is the system's word on it.

    `has_answered` says that the server did answer before, so that the way of speaking to it must be right.
    """
    hint = None
    if not has_answered:
        hint = "a server that expects TLS closes like this: try https://"
        if endpoint.is_tls:
            hint = "a server that wants a client certificate may close like this"
    said = f": {fault}" if fault else ""
    return Unreachable(f"{endpoint.address} closed the connection without answering {request}{said}", hint=hint)


def _hint(endpoint: Endpoint, error: OSError) -> str | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "trust the authority that signed it by its file, or turn verification off for a server you know"
    if isinstance(error, ssl.SSLError):
        if tls_reason(error) in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
            return "the server may speak plain HTTP there: try http://"
        return None
    if isinstance(error, socket.gaierror):
        return f"is the host's name right? {endpoint.host!r} could not be looked up"
    return next((_HINTS[number] for number in _numbers(error) if number in _HINTS), None)


def _numbers(error: BaseException) -> list[int]:
    """The error numbers; when several addresses were tried, asyncio has them in the text only."""
    if not isinstance(error, OSError):
        return []
    return [error.errno] if error.errno else [int(number) for number in _ERRNO_IN_TEXT.findall(str(error))]
