"""One program walks the whole KV cache of a sequence and head, so that one core's reading rate is the limit.

Seen in public: 13 to 14 GB/s on an RTX PRO 6000 whatever the length, the heads (1 to 16) or the batch (1 to 32), in a
kernel that does not split the KV axis; 30 to 60 times less than a splitting one. Triton's extend kernel, which
verifies drafts and trees in SGLang on NVIDIA, walks so; profilers then show busy SMs and idle tensor cores.
"""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Hypothesis, Support
from deepdraft.diagnosis.number import bytes_s
from deepdraft.diagnosis.words import capital

BAND_BYTES_S = (5e9, 20e9)
"""What one program was seen to read."""
_MARGIN = 2.5


def serial_kv_walk(case: Case, kv_bytes_s: float) -> Hypothesis:
    """`kv_bytes_s`: what decode reads of the KV cache on each device, at most."""
    low, high = BAND_BYTES_S
    support: Support
    if low <= kv_bytes_s <= high:
        support = "some"
        why = f"{bytes_s(kv_bytes_s)} lies in the band of 5 to 20 GB/s that one program reads"
    elif low / _MARGIN <= kv_bytes_s <= high * _MARGIN:
        support = "weak"
        why = f"{bytes_s(kv_bytes_s)} is near the band of 5 to 20 GB/s that one program reads"
    else:
        support = "against"
        why = f"{bytes_s(kv_bytes_s)} is far outside the 5 to 20 GB/s that one program reads"
    device = case.device
    if device is not None and device.unsplit_bytes_s is not None and support == "some":
        support = "strong" if case.is_step_known else "some"
        why += f"; a kernel that does not split was seen at {bytes_s(device.unsplit_bytes_s)} on this device"
    if not case.is_step_known:
        why += "; it is an upper bound, since tokens a step are not known"
    return Hypothesis(
        name="serial_kv_walk",
        support=support,
        why=why,
        prediction="Step time hardly changes with the batch (1 to 8 requests of the same length) or the number of "
        "heads; 2 to 4 us for each 32 tokens a layer; a profiler shows SMs busy and tensor cores below 5 %.",
        experiment=_experiment(case),
    )


def _experiment(case: Case) -> str:
    if case.speculates:
        return (
            f"{capital(case.say('drafter_off'))} and measure one long length: plain decode splits the KV axis, "
            f"verify may not. If it is as slow: {case.say('kv_splits')}, or {case.say('attention_backend')}."
        )
    return f"{capital(case.say('kv_splits'))}, or {case.say('attention_backend')}, and measure one long length again."
