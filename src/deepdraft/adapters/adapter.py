"""What the rest of Deepdraft knows of a server: an Adapter. This one speaks plain OpenAI; engines are subclasses.

An adapter asks what is there, writes request bodies and makes requests cold; readings, and where an answer's
acceptance comes from, are `watched_server`'s. It sends no measured request and judges no figure. Engine-specific
fields are sent only by the adapter of that engine, and only as far as the server took them when it was asked
(`settle`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from deepdraft.adapters.body import CACHE_PROMPT, Wish, cold_fields, length_and_report_fields, openai_body
from deepdraft.adapters.field import CONTINUOUS_USAGE, INCLUDE_USAGE, merged, nested
from deepdraft.adapters.known_server import Setup
from deepdraft.adapters.message import error_message
from deepdraft.adapters.observation import observed
from deepdraft.adapters.probe import ROUTES, Probe, random_words, settled
from deepdraft.adapters.server import Server
from deepdraft.adapters.watched_server import WatchedServer
from deepdraft.errors import HttpStatus, RequestFailed, UsageError
from deepdraft.records import Capabilities, ColdStep, RequestTrace, Ternary


class Adapter(WatchedServer):
    """A server that is compatible with OpenAI's API, and nothing more is known of it."""

    routes: ClassVar[tuple[str, ...]] = ("chat", "completions")
    """Generation routes that the engine may have, in the order of preference."""
    optional_fields: ClassVar[Mapping[str, Any]] = {INCLUDE_USAGE: True, CONTINUOUS_USAGE: True, "ignore_eos": True}
    """Fields that are tried: path -> value."""
    exact_length_field: ClassVar[str | None] = None
    """The field that forces a length where ignore_eos is refused: its value is max_tokens."""
    salt_field: ClassVar[str | None] = None
    """The field that separates a request's cache entries from all others."""
    obeys_ignore_eos: ClassVar[Ternary] = "unknown"
    """What it means that ignore_eos was accepted."""

    def __init__(self, server: Server, capabilities: Capabilities, setup: Setup) -> None:
        super().__init__(server, capabilities, setup)
        self._rng = random.Random()  # no seed: probes of two runs must not share a prefix either
        self._fields: dict[str, dict[str, Any]] = {}  # route -> fields that the server took
        self._route: str | None = None
        self._max_tokens_field = "max_tokens"
        self.num_probe_requests = 0
        """Generation requests sent by this adapter, none of them measured."""

    @property
    def endpoint(self) -> str:
        """The route that `request_body` writes for: chat, completions or native."""
        if self._route is not None:
            return self._route
        return self.routes[0] if self._setup.endpoint == "auto" else self._setup.endpoint

    # --- what is there

    @classmethod
    async def recognised(cls, server: Server, model_cards: list[dict[str, Any]]) -> tuple[str, dict[str, Any]] | None:
        """Whether this engine answers there: what gave it away, and the answers; None when it does not."""
        return "no answer of an engine we know", {}

    async def inspect(self, answers: Mapping[str, Any]) -> Capabilities:
        """The capabilities that can be had without generating. `answers`: what `recognised` gathered."""
        return self._capabilities

    async def settle(self, *, limit_s: float = 120.0) -> None:
        """Find out by tiny requests which routes answer and which optional fields the server takes.

        Every prompt begins with its own random words, so that none is found in a cache, nor fills one with a prefix
        of a measured prompt. limit_s: how long one probe may wait for its first token.
        Raises ServerError (Unauthorized, Unreachable ...) when no route answers, UsageError when the one asked for
        does not exist.
        """
        wanted = self._setup.endpoint
        if wanted != "auto" and wanted not in self.routes:
            raise UsageError(
                f"the {self.engine} adapter has no endpoint {wanted!r}", hint=f"use one of: {', '.join(self.routes)}"
            )
        can_tokenize = await self.tokenize("a b") is not None
        self.learn(tokenizes="yes" if can_tokenize else "no")
        tried = tuple(route for route in self.routes if route != "native") if wanted == "auto" else (wanted,)
        await settled(self, tried, limit_s)

    def use(self, endpoint: str) -> None:
        """Write bodies for another of the routes that answered. Raises UsageError when it did not answer."""
        if endpoint not in self._fields:
            raise UsageError(
                f"the server does not answer on its {endpoint} endpoint",
                hint=f"it answers on: {', '.join(self._fields) or 'none'}",
            )
        self._route = endpoint

    # --- requests

    def request_body(self, wish: Wish) -> tuple[str, bytes]:
        """The path and the JSON body of a streaming request that generates exactly `max_tokens` where the server can
        be made to. Raises UsageError for token ids on the chat route."""
        route = self.endpoint
        fields = self._fields.get(route, dict(self.optional_fields))
        return ROUTES[route], msgspec.json.encode(self.body_of(route, fields, wish))

    def body_of(self, route: str, fields: Mapping[str, Any], wish: Wish) -> dict[str, Any]:
        """The body for a route, with these optional fields (path -> value) and the user's extra ones merged last."""
        body = openai_body(route, wish, model=self._capabilities.model, max_tokens_field=self._max_tokens_field)
        used = length_and_report_fields(
            fields, wish, exact_length_field=self.exact_length_field, salt_field=self.salt_field
        )
        body = merged(body, nested(used)) | self.cold_fields(wish.cache_salt, fields)
        return merged(body, self._setup.extra_body)

    def cold_fields(self, cache_salt: str | None, fields: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Fields that keep a request from being served from the prefix cache."""
        if self._setup.keep_cache:
            return {}
        taken = self._fields.get(self.endpoint, self.optional_fields) if fields is None else fields
        return cold_fields(taken, cache_salt, self.salt_field)

    def error_message(self, status: int, body: bytes) -> str:
        """One line: the status and the server's own words."""
        return error_message(status, body)

    async def probed(self, prompt: str | list[int], *, limit_s: float = 120.0) -> RequestTrace:
        """The trace of a request for one token on the settled route, none of the measured ones.

        limit_s: how long it may wait for its first token. Raises HttpStatus when the server answers with an error
        status, RequestFailed for any other failure, ServerError when there is no connection.
        """
        path, body = self.request_body(Wish(prompt=prompt, max_tokens=1, cache_salt=self.probe_prompt()[:16]))
        self.num_probe_requests += 1
        trace, failure = await self._server.generate(path, body, limit_s=limit_s)
        if failure is None or failure.name == "EmptyStream":
            return trace
        if failure.http_status is not None:
            raise HttpStatus(failure.http_status, failure.message, retry_after_s=failure.retry_after_s)
        raise RequestFailed(f"a request for one token failed: {failure.message}")

    # --- counting tokens

    async def tokenize(self, text: str) -> list[int] | None:
        """Token ids of a raw text, without special tokens; None when the server has no endpoint for it."""
        return None

    async def count_prompt(self, text: str) -> int | None:
        """Prompt tokens as the server will count them on the settled route, chat template or BOS included, without
        generating; None when the server can't say."""
        return None

    # --- cold requests

    async def flush(self) -> ColdStep | None:
        """Empty the server's prefix cache; None when the engine has no way to."""
        return None

    # --- for `probe`, which settles this adapter

    def probe_prompt(self) -> str:
        """A short prompt that begins like no other."""
        return random_words(self._rng)

    def random_ids(self) -> list[int]:
        """Token ids that any vocabulary has, in an order that no other prompt has."""
        return [self._rng.randrange(300, 900) for _ in range(12)]

    def fields_to_try(self, route: str) -> dict[str, Any]:
        """The optional fields that a route's first probe carries: those that another route took, else all."""
        return dict(next(iter(self._fields.values()), self.optional_fields))

    def replacement_for(self, refused: tuple[str, ...]) -> dict[str, Any]:
        """Fields to try in place of refused ones."""
        if "ignore_eos" in refused and self.exact_length_field is not None:
            return {self.exact_length_field: None}
        return {}

    def rename_max_tokens(self) -> bool:
        """Use max_completion_tokens, which newer models of OpenAI want; False when it is used already."""
        if self._max_tokens_field == "max_completion_tokens":
            return False
        self._max_tokens_field = "max_completion_tokens"
        return True

    def took(self, route: str, fields: Mapping[str, Any]) -> None:
        """Remember the fields a route took; the first route that answers is the one used."""
        self._fields[route] = dict(fields)
        if self._route is None:
            self._route = route
            self._keep_cold_means(fields)
        self.learn(endpoints=tuple(self._fields))

    def _keep_cold_means(self, fields: Mapping[str, Any]) -> None:
        """Forget the ways to be cold whose field the server did not take."""
        lost = set()
        if not any(name in fields for name in (self.salt_field, "extra_key")):
            lost.add("cache_salt")
        if CACHE_PROMPT not in fields:
            lost.add("cache_prompt")
        self.learn(cold_means=tuple(means for means in self._capabilities.cold_means if means not in lost))

    def observe(self, probe: Probe) -> None:
        """Learn from an answered probe what the server reports."""
        self._capabilities = observed(
            probe,
            self._capabilities,
            reports_cached_tokens=self.cached_tokens_reported(probe.trace),
            states_acceptance=self.stated_acceptance(probe.trace) is not None,
            exact_length_field=self.exact_length_field,
            obeys_ignore_eos=self.obeys_ignore_eos,
        )
