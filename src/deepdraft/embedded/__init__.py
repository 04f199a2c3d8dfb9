"""A real server on this machine, for people who have none at hand: `deepdraft sweep --embedded`.

The rest of Deepdraft only ever sees its URL. `running` starts a child process, waits until it is ready and ends it
with the caller. Our own inference stack stands behind it, or llama.cpp: a server of somebody else.
"""

from deepdraft.embedded.deepdraft import DeepdraftSpec
from deepdraft.embedded.engines import DEFAULT_ENGINE, embedded_engine, embedded_url, engine_name
from deepdraft.embedded.llamacpp import LlamacppSpec
from deepdraft.embedded.process import EmbeddedServer, running
from deepdraft.embedded.spec import EmbeddedSpec

__all__ = [
    "DEFAULT_ENGINE",
    "DeepdraftSpec",
    "EmbeddedServer",
    "EmbeddedSpec",
    "LlamacppSpec",
    "embedded_engine",
    "embedded_url",
    "engine_name",
    "running",
]
