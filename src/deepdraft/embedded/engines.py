"""What can stand behind `--embedded`, and the name under which a results file keeps it in the place of a URL."""

from __future__ import annotations

from deepdraft.embedded.deepdraft import DeepdraftSpec
from deepdraft.embedded.llamacpp import LlamacppSpec
from deepdraft.embedded.spec import EmbeddedSpec
from deepdraft.errors import UsageError

DEFAULT_ENGINE = "deepdraft"
ENGINES: dict[str, type[EmbeddedSpec]] = {DEFAULT_ENGINE: DeepdraftSpec, "llamacpp": LlamacppSpec}
"""By the name of the engine's adapter."""
_URL = "embedded"


def embedded_url(name: str) -> str:
    """What a spec holds in place of a URL: "embedded", with the engine's name behind it unless it is the default.
    Raises UsageError for an unknown engine."""
    if name not in ENGINES:
        raise _unknown(name)
    return _URL if name == DEFAULT_ENGINE else f"{_URL} {name}"


def embedded_engine(url: str) -> type[EmbeddedSpec] | None:
    """The engine that a spec's URL names; None when it is a URL. Raises UsageError for an unknown engine."""
    name = engine_name(url)
    if name is None:
        return None
    if name not in ENGINES:
        raise _unknown(name)
    return ENGINES[name]


def engine_name(url: str) -> str | None:
    """The name of the embedded engine that a spec's URL stands for, known or not; None when it is a URL."""
    start, _, name = url.partition(" ")
    return (name or DEFAULT_ENGINE) if start == _URL else None


def _unknown(name: str) -> UsageError:
    return UsageError(f"no embedded engine {name!r}", hint=f"one of: {', '.join(ENGINES)}")
