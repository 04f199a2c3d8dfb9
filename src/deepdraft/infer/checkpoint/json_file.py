"""The JSON files of a model's folder, read with one clear line for each way they can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deepdraft.errors import UsageError


def json_object(path: Path) -> dict[str, Any]:
    """The object a file holds. Raises UsageError where it can't be read or holds something else."""
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not JSON: {error}", hint="was it copied or downloaded in full?") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} holds no JSON object")
    return found
