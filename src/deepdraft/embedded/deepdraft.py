"""Our own inference stack with the model that ships with the package: `deepdraft serve --model embedded`.

Only its command line is written here. What it is comes out as with any server: by asking it over HTTP.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from deepdraft.embedded.spec import EmbeddedSpec, num_cores

_DRAFT_ROOM_LEN = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepdraftSpec(EmbeddedSpec):
    """How our server is set up."""

    label: ClassVar[str] = "deepdraft serve with the embedded model"
    default_context_lens: ClassVar[str] = "1k,2k,4k,8k,16k"

    model: str = "embedded"
    """The embedded model, or a path: whatever `deepdraft serve --model` takes."""

    def command(self) -> list[str]:
        """See EmbeddedSpec. `flags`: of drafting. What is missing is said by the child, in one line."""
        words = [sys.executable, "-m", "deepdraft", "serve", "--model", self.model, "--port", "0"]
        words += ["--max-context-len", str(self.slot_len)]
        words += ["--kv-pool-tokens", str((self.slot_len + self._draft_room_len) * self.num_slots)]
        words += ["--max-running-requests", str(self.num_slots)]
        words += ["--num-threads", str(self._num_threads)]
        return [*words, *self.flags, "--parent-stdin"]

    def environment(self) -> Mapping[str, str]:
        """Threads that wait for work sleep, and leave their cores to the client."""
        return {"OMP_WAIT_POLICY": "PASSIVE"}

    @property
    def _draft_room_len(self) -> int:
        """Slots for drafts that are not accepted yet, so that a request at the limit is still drafted for."""
        return _DRAFT_ROOM_LEN if self.flags else 0

    @property
    def _num_threads(self) -> int:
        """All cores. Prefill is faster with each; a decode step is too small to be shared out, so while tokens
        stream there is room for the client, which needs a few percent of a core."""
        return self.num_threads or num_cores()
