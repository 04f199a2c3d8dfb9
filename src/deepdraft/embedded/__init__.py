"""A real server on this machine, for people who have none at hand: `deepdraft sweep --embedded`.

The rest of Deepdraft only ever sees its URL. `running` starts a child process, waits until it is ready and ends it
with the caller. Which engine stands behind it is decided in one place, `engine.py`.
"""

from deepdraft.embedded.engine import EmbeddedSpec, command
from deepdraft.embedded.process import EmbeddedServer, running

__all__ = ["EmbeddedServer", "EmbeddedSpec", "command", "running"]
