"""Request bodies as JSON objects."""

from __future__ import annotations

from typing import Any

import msgspec

from deepdraft.simulate.ask import Refused


def json_body(content: bytes) -> dict[str, Any]:
    """The object in a body. Raises Refused when there is none."""
    try:
        body = msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        raise Refused(400, f"The body is not JSON: {error}", kind="invalid_request_error") from error
    if not isinstance(body, dict):
        raise Refused(400, "The body must be a JSON object.", kind="invalid_request_error")
    return body
