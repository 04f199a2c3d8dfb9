"""The dialects, one file each: what endpoints there are and what their bytes look like. None knows about time."""

from __future__ import annotations

from deepdraft.simulate.dialects.llamacpp import LlamaCppDialect
from deepdraft.simulate.dialects.openai import OpenAiDialect
from deepdraft.simulate.dialects.sglang import SglangDialect
from deepdraft.simulate.dialects.transformers import TransformersDialect
from deepdraft.simulate.dialects.vllm import VllmDialect
from deepdraft.simulate.engine import Engine
from deepdraft.simulate.spec import DialectName, SimulateSpec

_DIALECTS: dict[DialectName, type[OpenAiDialect]] = {
    "openai": OpenAiDialect,
    "sglang": SglangDialect,
    "vllm": VllmDialect,
    "llamacpp": LlamaCppDialect,
    "transformers": TransformersDialect,
}


def dialect_of(spec: SimulateSpec, engine: Engine) -> OpenAiDialect:
    """The dialect that a spec names."""
    return _DIALECTS[spec.dialect](spec, engine)
