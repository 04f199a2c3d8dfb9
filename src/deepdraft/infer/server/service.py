"""What the routes share: the engine's worker, the tokenizer, and what the server is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deepdraft.infer.server.metrics import Metrics
from deepdraft.infer.server.prompt import TextWorker
from deepdraft.infer.server.refusal import Refused
from deepdraft.infer.server.worker import EngineWorker

if TYPE_CHECKING:
    from deepdraft.infer.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What does not change while the server runs."""

    model_names: tuple[str, ...]
    """What requests may call it; the first is what answers say."""
    max_context_len: int
    kv_pool_tokens: int
    vocab_size: int
    created_s: int
    """Unix time when the server began."""
    settings: Mapping[str, Any]
    """/server_info, but for its state."""

    @property
    def model(self) -> str:
        """The model's name in answers."""
        return self.model_names[0]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Service:
    """One model behind one address."""

    worker: EngineWorker
    tokenizer: Tokenizer
    metrics: Metrics
    facts: ServerFacts
    max_body_bytes: int
    texts: TextWorker = field(default_factory=TextWorker)

    def check_model(self, name: str | None) -> None:
        """Raises Refused (404) for another model's name; a request without one means the only model there is."""
        if name and name not in self.facts.model_names:
            raise Refused(404, f"The model {name!r} does not exist.", param="model", code="model_not_found")
