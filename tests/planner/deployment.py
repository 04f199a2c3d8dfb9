"""Plans of the reference deployment and others, by name, for the tests of what is built on plans."""

from __future__ import annotations

from typing import Any

from deepdraft.cost.device import device
from deepdraft.planner.calibration import Calibration
from deepdraft.planner.engines import plan_for
from deepdraft.planner.open_model import open_model
from deepdraft.planner.plan import Plan
from deepdraft.planner.settings import EngineSettings, LlamacppSettings, SglangSettings, VllmSettings

GIB = 2**30
CARD = device("RTX PRO 6000")
KIMI = open_model("kimi-k2.6", drafter="kimi-k2.6-dflash")
QWEN = open_model("qwen3-8b")


def sglang(**changes: Any) -> SglangSettings:
    """The reference deployment's flags, at 0.94 unless changed."""
    plain: dict[str, Any] = {
        "mem_fraction_static": 0.94,
        "tp_size": 8,
        "context_length": 200_000,
        "chunked_prefill_size": 8192,
        "max_running_requests": 8,
        "attention_backend": "triton",
        "speculative_algorithm": "DFLASH",
        "speculative_num_draft_tokens": 8,
    }
    return SglangSettings(**{**plain, **changes})


def measured(fraction: float, tokens: int, reserve_gib: float) -> Calibration:
    """A start of the reference deployment as its log tells it."""
    return Calibration(
        source="start.log",
        settings=sglang(mem_fraction_static=fraction),
        kv_pool_tokens=tokens,
        available_before_weights_bytes=round(93.73 * GIB),
        available_after_weights_bytes=round(21.33 * GIB),
        reserve_bytes=round(reserve_gib * GIB),
    )


def kimi(settings: EngineSettings, calibration: Calibration | None = None) -> Plan:
    """By SGLang 0.5.12."""
    return plan_for("sglang", "0.5.12", KIMI, CARD, settings, calibration)


def calibrated(settings: EngineSettings) -> Plan:
    """By SGLang 0.5.12 and the start at 0.94."""
    return kimi(settings, measured(0.94, 218_484, 4.2))


def qwen_vllm(settings: EngineSettings | None = None) -> Plan:
    """Qwen3-8B on one card."""
    return plan_for("vllm", None, QWEN, CARD, settings or VllmSettings())


def qwen_llamacpp(settings: EngineSettings | None = None) -> Plan:
    """Qwen3-8B on one card."""
    return plan_for("llamacpp", None, QWEN, CARD, settings or LlamacppSettings(ctx_size=32_768))
