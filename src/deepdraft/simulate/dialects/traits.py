"""What a dialect is like: where usage goes, what is understood, what is told of the cache. Each trait is the engine's
own unless a confound of the spec says otherwise; nothing here reads a body or shapes an event.
"""

from __future__ import annotations

from email.utils import formatdate
from typing import Any, ClassVar

from deepdraft.simulate.ask import Shape
from deepdraft.simulate.engine import Engine, Generation
from deepdraft.simulate.spec import EventsPer, RoleChunk, SimulateSpec, UnknownFields, UsagePlacement, UsageWhen

Event = dict[str, Any]
"""A JSON object that is sent: an answer, an event of a stream, an error."""


class Traits:
    """The traits of a plain OpenAI-compatible server."""

    owned_by: ClassVar[str] = "openai"
    server_header: ClassVar[str] = "deepdraft-simulate"
    stream_content_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    takes_token_ids: ClassVar[bool] = True
    default_completion_tokens: ClassVar[int | None] = 16
    public_paths: ClassVar[frozenset[str]] = frozenset({"/health"})
    """Paths that need no key."""
    default_unknown_fields: ClassVar[UnknownFields] = "ignored"
    default_continuous_usage: ClassVar[bool] = False
    default_token_ids: ClassVar[bool] = False
    default_role_chunk: ClassVar[RoleChunk] = "with_first_token"
    default_events_per: ClassVar[EventsPer] = "step"
    finish_rides_on_text: ClassVar[frozenset[Shape]] = frozenset()
    """Shapes whose last text event carries the finish_reason."""
    reports_cached_tokens: ClassVar[bool] = True
    """Whether usage has cached tokens unless told otherwise."""

    def __init__(self, spec: SimulateSpec, engine: Engine) -> None:
        self.spec = spec
        self.engine = engine
        self.physics = spec.physics
        self.confounds = spec.confounds
        self.surface = spec.surface

    def key_for(self, path: str) -> str | None:
        """The key a path wants; None: none."""
        return None if path in self.public_paths else self.surface.api_key

    @property
    def has_continuous_usage(self) -> bool:
        """Whether continuous_usage_stats is understood."""
        return self._supported(self.confounds.continuous_usage, self.default_continuous_usage)

    @property
    def has_token_ids(self) -> bool:
        """Whether return_token_ids is understood."""
        return self._supported(self.confounds.token_ids, self.default_token_ids)

    @staticmethod
    def _supported(switch: str, default: bool) -> bool:
        return default if switch == "dialect" else switch == "yes"

    def sends_done(self, shape: Shape) -> bool:
        """Whether [DONE] ends a stream unless told otherwise."""
        return True

    def usage_placement(self, shape: Shape) -> UsagePlacement:
        """Where usage goes unless told otherwise."""
        return "own_chunk"

    def usage_when(self, shape: Shape) -> UsageWhen:
        """When usage is given unless told otherwise."""
        return "asked"

    def shows_cached_in_usage(self) -> bool:
        """Whether usage tells of cached tokens."""
        report = self.confounds.cached_tokens_report
        return self.reports_cached_tokens if report == "dialect" else report in ("usage", "zero")

    def shows_cached_in_counters(self) -> bool:
        """Whether the metrics tell of cached tokens."""
        return self.confounds.cached_tokens_report != "nothing"

    def shown_cached(self, num_tokens: int) -> int:
        """Cached tokens as the server says them."""
        return 0 if self.confounds.cached_tokens_report == "zero" else num_tokens

    def common_headers(self) -> list[tuple[str, str]]:
        """Headers of every answer, in front of the others."""
        return [("date", formatdate(usegmt=True)), ("server", self.server_header)]

    def stream_headers(self, generation: Generation) -> list[tuple[str, str]]:
        """Headers of a streamed answer, after the common ones."""
        return [("content-type", self.stream_content_type), ("x-request-id", generation.truth.request_id)]
