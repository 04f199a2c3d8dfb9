"""What a results file lacks and its reader may know: the model, the device, limits, memory left."""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.cost.device import Device
from deepdraft.cost.expected import ExpectedTimes
from deepdraft.cost.model_json import ModelShape

DEFAULT_TTFT_LIMIT_S = 10.0
DEFAULT_TPOT_LIMIT_S = 0.1
"""Ten tokens a second: about twice the speed of reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """None: not given."""

    model: ModelShape | None = None
    device: Device | None = None
    tp_size: int | None = None
    kv_element_bytes: int | None = None
    ttft_limit_s: float = DEFAULT_TTFT_LIMIT_S
    tpot_limit_s: float = DEFAULT_TPOT_LIMIT_S
    are_limits_given: bool = False
    reserve_bytes: float | None = None
    """Memory left on each device once the server is up."""
    expected: tuple[ExpectedTimes, ...] = ()
    """What a performance model expects without a drafter."""
