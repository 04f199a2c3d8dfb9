"""Chunks after the first are prefilled in absorbed form (on the latent), at several times the operations.

SGLang's Triton backend chooses the expanded form only for a prompt without a prefix, and every chunk after the first
has one: (576 + 512) / (192 + 128) = 3.4 times the operations for DeepSeek-V3 shapes.
"""

from __future__ import annotations

from deepdraft.cost.floor import attention_prefill_flops
from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Hypothesis, Support
from deepdraft.diagnosis.number import times


def absorbed_prefill(case: Case) -> Hypothesis | None:
    """None for a model without latent attention, or where the model is not known."""
    model = case.model
    if model is None or model.attention != "latent":
        return None
    factor = attention_prefill_flops(model, 1e5, is_absorbed=True) / attention_prefill_flops(model, 1e5)
    backend = str(case.settings.get("attention_backend", ""))
    support: Support = "some" if case.capabilities.engine == "sglang" and backend == "triton" else "weak"
    where = (
        "the attention backend is triton, which does so" if support == "some" else "the backend's way is not known"
    )
    return Hypothesis(
        name="absorbed_chunked_prefill",
        support=support,
        why=f"{where}; prompts beyond one chunk take {times(factor)} the operations of the expanded form",
        prediction="A prompt of one chunk runs at several times the attention rate of the same tokens in chunks.",
        experiment="Prefill one length in one chunk and in two (--chunked-prefill-size at and below its length)."
        if case.capabilities.engine == "sglang"
        else "Prefill one length in one chunk and in two.",
    )
