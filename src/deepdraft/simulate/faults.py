"""Which fault strikes at which request: counted, so that the same requests fail every time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from deepdraft.simulate.spec import Fault


class FaultPlan:
    """The faults of a spec and how many requests each has looked at."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = faults
        self._num_seen = [0] * len(faults)

    def strike(self, scope: Literal["generate", "all"], *, prompt_len: int = 0) -> Fault | None:
        """Count a request with all faults that look at it; the first of those that strike, or None."""
        struck = None
        for index, fault in enumerate(self._faults):
            if fault.scope != scope or prompt_len < fault.min_prompt_len:
                continue
            self._num_seen[index] += 1
            if struck is None and fault.strikes(self._num_seen[index]):
                struck = fault
        return struck
