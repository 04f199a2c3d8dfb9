"""What the rest of Deepdraft knows of a server: an Adapter. This one speaks plain OpenAI; engines are subclasses.

An adapter asks (capabilities, tokenize, flush, readings), writes request bodies, and says where an answer's
acceptance comes from. It sends no measured request and judges no figure. Engine-specific fields are sent only by the
adapter of that engine, and only as far as the server took them when it was asked (`settle`).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from deepdraft.adapters import acceptance as source
from deepdraft.adapters.counter import CounterMap, reading
from deepdraft.adapters.field import CONTINUOUS_USAGE, INCLUDE_USAGE, merged, nested
from deepdraft.adapters.log import LogTally, log_acceptance, log_size_bytes, log_text
from deepdraft.adapters.message import error_message
from deepdraft.adapters.probe import ROUTES, Probe, random_words, settled
from deepdraft.adapters.prometheus import MetricsPage
from deepdraft.adapters.server import Reply, Server
from deepdraft.errors import HttpStatus, RequestFailed, UsageError
from deepdraft.records import Acceptance, Capabilities, ColdStep, RequestTrace, ServerReading, Ternary

FLUSH_LIMIT_S = 10.0
"""How long a flush that is refused, since requests are still running, is tried again."""
_FLUSH_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What the user decided about talking to the server."""

    endpoint: str = "auto"
    """auto, chat, completions, native"""
    server_log: Path | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    keep_cache: bool = False
    """Leave the server's prefix cache in use."""


class Adapter:
    """A server that is compatible with OpenAI's API, and nothing more is known of it."""

    engine: ClassVar[str] = "openai"
    routes: ClassVar[tuple[str, ...]] = ("chat", "completions")
    """Generation routes that the engine may have, in the order of preference."""
    optional_fields: ClassVar[Mapping[str, Any]] = {INCLUDE_USAGE: True, CONTINUOUS_USAGE: True, "ignore_eos": True}
    """Fields that are tried: path -> value."""
    exact_length_field: ClassVar[str | None] = None
    """The field that forces a length where ignore_eos is refused: its value is max_tokens."""
    salt_field: ClassVar[str | None] = None
    """The field that separates a request's cache entries from all others."""
    counter_map: ClassVar[CounterMap | None] = None
    metrics_path: ClassVar[str] = "/metrics"
    health_path: ClassVar[str] = "/health"
    obeys_ignore_eos: ClassVar[Ternary] = "unknown"
    """What it means that ignore_eos was accepted."""

    def __init__(self, server: Server, capabilities: Capabilities, setup: Setup) -> None:
        self._server = server
        self._capabilities = capabilities
        self._setup = setup
        self._rng = random.Random()  # no seed: probes of two runs must not share a prefix either
        self._fields: dict[str, dict[str, Any]] = {}  # route -> fields that the server took
        self._route: str | None = None
        self._max_tokens_field = "max_tokens"
        self._health_path = self.health_path
        self._tally = None if setup.server_log is None else LogTally(self.engine, setup.server_log)
        self.num_probe_requests = 0
        """Generation requests sent by this adapter, none of them measured."""

    @property
    def capabilities(self) -> Capabilities:
        """What the server is and can tell, as far as it is known now; `settle` completes it."""
        return self._capabilities

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
        await settled(self, (wanted,) if wanted != "auto" else self._auto_routes(), limit_s)

    def _auto_routes(self) -> tuple[str, ...]:
        """Routes in the order in which `auto` tries them."""
        return tuple(route for route in self.routes if route != "native")

    def use(self, endpoint: str) -> None:
        """Write bodies for another of the routes that answered. Raises UsageError when it did not answer."""
        if endpoint not in self._fields:
            raise UsageError(
                f"the server does not answer on its {endpoint} endpoint",
                hint=f"it answers on: {', '.join(self._fields) or 'none'}",
            )
        self._route = endpoint

    async def health(self, *, limit_s: float = 10.0) -> str | None:
        """None when the server is well, else what is wrong in one sentence. Generates nothing."""
        reply = await self._server.try_get(self._health_path, limit_s=limit_s)
        if reply is not None and reply.status in (404, 405, 501):
            reply = await self._server.try_get("/v1/models", limit_s=limit_s)
        if reply is None:
            return f"the server did not answer within {limit_s:g} s"
        return None if reply.status < 400 else error_message(reply.status, reply.body)

    # --- requests

    def request_body(
        self,
        prompt: str | list[int],
        *,
        max_tokens: int,
        cache_salt: str | None = None,
        temperature: float = 0.0,
        seed: int | None = None,
        stop_early: bool = False,
    ) -> tuple[str, bytes]:
        """The path and the JSON body of a streaming request that generates exactly `max_tokens` where the server can
        be made to.

        prompt: text, or token ids on the completions and native routes. cache_salt: used where the engine knows one.
        stop_early: let the model end its answer when it wants to.
        Raises UsageError for token ids on the chat route.
        """
        route = self.endpoint
        fields = self._fields.get(route, dict(self.optional_fields))
        body = self.body_of(
            route,
            fields,
            prompt,
            max_tokens=max_tokens,
            cache_salt=cache_salt,
            temperature=temperature,
            seed=seed,
            stop_early=stop_early,
        )
        return ROUTES[route], msgspec.json.encode(body)

    def body_of(
        self,
        route: str,
        fields: Mapping[str, Any],
        prompt: str | list[int],
        *,
        max_tokens: int,
        cache_salt: str | None,
        temperature: float,
        seed: int | None,
        stop_early: bool,
    ) -> dict[str, Any]:
        """The body for a route, with these optional fields and the user's extra ones merged last."""
        if route == "chat" and not isinstance(prompt, str):
            raise UsageError("the chat endpoint takes no token ids", hint="use --endpoint completions")
        body: dict[str, Any] = {} if self._capabilities.model is None else {"model": self._capabilities.model}
        if route == "chat":
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        body |= {self._max_tokens_field: max_tokens, "temperature": temperature, "stream": True}
        if seed is not None:
            body["seed"] = seed
        used = self._used_fields(fields, max_tokens, stop_early)
        body = merged(body, nested(used))
        body |= self.cold_fields(cache_salt, fields)
        return merged(body, self._setup.extra_body)

    def _used_fields(self, fields: Mapping[str, Any], max_tokens: int, stop_early: bool) -> dict[str, Any]:
        used = {path: value for path, value in fields.items() if path not in (self.salt_field, "cache_prompt")}
        length_fields = {"ignore_eos", self.exact_length_field}
        if stop_early:
            return {path: value for path, value in used.items() if path not in length_fields}
        if self.exact_length_field in used:
            used[self.exact_length_field] = max_tokens
        return used

    def cold_fields(self, cache_salt: str | None, fields: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Fields that keep a request from being served from the prefix cache."""
        taken = self._fields.get(self.endpoint, self.optional_fields) if fields is None else fields
        if self._setup.keep_cache:
            return {}
        found: dict[str, Any] = {}
        if cache_salt is not None and self.salt_field is not None and self.salt_field in taken:
            found[self.salt_field] = cache_salt
        if "cache_prompt" in taken:
            found["cache_prompt"] = False
        return found

    def error_message(self, status: int, body: bytes) -> str:
        """One line: the status and the server's own words."""
        return error_message(status, body)

    async def probed(self, prompt: str | list[int], *, limit_s: float = 120.0) -> RequestTrace:
        """The trace of a request for one token on the settled route, none of the measured ones.

        limit_s: how long it may wait for its first token. Raises HttpStatus when the server answers with an error
        status, RequestFailed for any other failure, ServerError when there is no connection.
        """
        path, body = self.request_body(prompt, max_tokens=1, cache_salt=random_words(self._rng)[:16])
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

    async def _flush_by(self, path: str, is_refused: Callable[[Reply], bool]) -> ColdStep:
        """POST until the flush is done or FLUSH_LIMIT_S is over. `is_refused` reads a reply: whether the server
        declined because requests are still running or held."""
        began = time.monotonic()
        num_tries = 0
        while True:
            num_tries += 1
            reply = await self._server.try_post(path, None, is_admin=True)
            waited = "" if num_tries == 1 else f" (try {num_tries}, after {time.monotonic() - began:.1f} s)"
            if reply is None:
                return ColdStep(means="flush", is_done=False, evidence=f"POST {path}: no answer{waited}")
            if reply.status in (401, 403):
                return ColdStep(
                    means="flush",
                    is_done=False,
                    evidence=f"POST {path}: {error_message(reply.status, reply.body)}; it wants --admin-key",
                )
            refused = is_refused(reply)
            if not refused or time.monotonic() - began > FLUSH_LIMIT_S:
                words = reply.text.splitlines()[0][:200] if reply.text else "no body"
                return ColdStep(
                    means="flush",
                    is_done=reply.status == 200 and not refused,
                    evidence=f"POST {path}: HTTP {reply.status}, {words}{waited}",
                )
            await asyncio.sleep(_FLUSH_PAUSE_S)

    # --- readings

    async def reading(self, at_s: float) -> ServerReading | None:
        """Load and counters now; None where the server offers nothing. `at_s`: seconds since the sweep began."""
        page = await self.metrics()
        found = None
        if page is not None and self.counter_map is not None:
            found = reading(page, self.counter_map, at_s, self.metrics_path)
        return self._with_log(found, at_s)

    async def metrics(self, *, limit_s: float = 10.0) -> MetricsPage | None:
        """The server's metrics page; None when there is none, or it did not come in time."""
        if self.counter_map is None or self._capabilities.has_counters == "no":
            return None
        reply = await self._server.try_get(self.metrics_path, limit_s=limit_s)
        if reply is None or reply.status != 200 or reply.json is not None:
            return None
        return self.counter_map.page(reply.text)

    def _with_log(self, found: ServerReading | None, at_s: float) -> ServerReading | None:
        """The reading with the length of the server's log, and with what only the log counts."""
        if self._tally is None:
            return found
        position = log_size_bytes(self._tally.path)
        if position is None:
            return found
        if found is None:
            found = ServerReading(at_s=at_s, source="server log")
        self._tally.advance(position)
        if "cached_tokens" not in found.counters and self._tally.cached_tokens is not None:
            counted = {"prompt_tokens": self._tally.prompt_tokens, "cached_tokens": self._tally.cached_tokens}
            source_name = found.source if found.source == "server log" else f"{found.source} and server log"
            found = replace(found, counters={**found.counters, **counted}, source=source_name)
        return replace(found, log_position_bytes=position)

    # --- acceptance

    def acceptance(
        self,
        trace: RequestTrace,
        before: ServerReading | None = None,
        after: ServerReading | None = None,
        *,
        is_alone: bool,
    ) -> Acceptance | None:
        """Speculation's counts for one request, from the best source there is; None when nothing tells.

        before, after: readings around the request. is_alone: we sent nothing else in between; only then, and when the
        readings show no other client's requests, do counters, log lines and gauges tell of this one.
        """
        stated = self.stated_acceptance(trace)
        if not is_alone or after is None or _others_ran(trace, before, after):
            return source.best([stated])
        counted = None if before is None else source.of_counters(before, after)
        if stated is not None:
            stated = source.with_steps_from(stated, counted)
        return source.best(
            [stated, counted, self._logged_acceptance(before, after), self._gauge_acceptance(before, after)]
        )

    def acceptance_between(self, before: ServerReading | None, after: ServerReading | None) -> Acceptance | None:
        """Speculation's counts of everything the server ran between two readings; None when nothing tells."""
        if after is None:
            return None
        counted = None if before is None else source.of_counters(before, after)
        return source.best([counted, self._logged_acceptance(before, after), self._gauge_acceptance(before, after)])

    def stated_acceptance(self, trace: RequestTrace) -> Acceptance | None:
        """What the answer itself states."""
        return None

    def _logged_acceptance(self, before: ServerReading | None, after: ServerReading) -> Acceptance | None:
        log = self._setup.server_log
        if log is None or before is None:
            return None
        start, end = before.log_position_bytes, after.log_position_bytes
        if start is None or end is None:
            return None
        return log_acceptance(self.engine, log_text(log, start, end))

    def _gauge_acceptance(self, before: ServerReading | None, after: ServerReading) -> Acceptance | None:
        return None

    # --- for `probe`, which settles this adapter

    @property
    def setup(self) -> Setup:
        """What the user decided."""
        return self._setup

    @property
    def server(self) -> Server:
        """The server this adapter talks to."""
        return self._server

    def probe_prompt(self) -> str:
        """A short prompt that begins like no other."""
        return random_words(self._rng)

    def fields_to_try(self, route: str) -> dict[str, Any]:
        """The optional fields that a route's first probe carries: those that another route took, else all."""
        return dict(next(iter(self._fields.values()), self.optional_fields))

    def replacement_for(self, refused: tuple[str, ...]) -> dict[str, Any]:
        """Fields to try in place of refused ones."""
        if "ignore_eos" in refused and self.exact_length_field is not None:
            return {self.exact_length_field: None}
        return {}

    def random_ids(self) -> list[int]:
        """Token ids that any vocabulary has, in an order that no other prompt has."""
        return [self._rng.randrange(300, 900) for _ in range(12)]

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
        if "cache_prompt" not in fields:
            lost.add("cache_prompt")
        self.learn(cold_means=tuple(means for means in self._capabilities.cold_means if means not in lost))

    def rename_max_tokens(self) -> bool:
        """Use max_completion_tokens, which newer models of OpenAI want; False when it is used already."""
        if self._max_tokens_field == "max_completion_tokens":
            return False
        self._max_tokens_field = "max_completion_tokens"
        return True

    def observe(self, probe: Probe) -> None:
        """Learn from an answered probe what the server reports."""
        trace, usage = probe.trace, probe.trace.usage
        found: dict[str, Any] = {"continuous_usage": "no"}
        # meta_info: the native way to say the same with each event.
        is_stated = trace.events.num_tokens_source in ("continuous usage", "meta_info")
        if is_stated and len(trace.events.num_tokens or ()) > 1:
            found["continuous_usage"] = "yes"
        elif CONTINUOUS_USAGE in probe.fields and len(trace.events.num_chars) < 2:
            found["continuous_usage"] = self._capabilities.continuous_usage  # one event proves nothing
        if self.cached_tokens_reported(trace):
            found["reports_cached_tokens"] = "yes"
        elif self._capabilities.reports_cached_tokens != "yes":
            found["reports_cached_tokens"] = "no"
        if self.stated_acceptance(trace) is not None:
            found["reports_acceptance"] = "yes"
        elif self._capabilities.speculation == "no":
            found["reports_acceptance"] = "no"
        if "ignore_eos" in probe.fields:
            tokens = None if usage is None else usage.completion_tokens
            obeyed = tokens is None or tokens >= probe.max_tokens
            found["ignores_eos"] = self.obeys_ignore_eos if obeyed else "no"
        elif self.exact_length_field not in probe.fields:
            found["ignores_eos"] = "no"
        else:
            found["ignores_eos"] = "yes"
        self.learn(**found)

    def cached_tokens_reported(self, trace: RequestTrace) -> bool:
        """Whether the answer says how much of its prompt came from a cache."""
        return trace.usage is not None and trace.usage.cached_tokens is not None

    def learn(self, **found: Any) -> None:
        """Add to the capabilities."""
        self._capabilities = replace(self._capabilities, **found)

    def doubt(self, *sentences: str) -> None:
        """Add sentences to what could not be established, each once."""
        known = self._capabilities.doubts
        self.learn(doubts=known + tuple(s for s in dict.fromkeys(sentences) if s not in known))

    async def _json(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON of a 200 answer, by GET, or by POST of a body; None otherwise."""
        reply: Reply | None
        reply = await (self._server.try_get(path) if body is None else self._server.try_post(path, body))
        return reply.json if reply is not None and reply.status == 200 else None


def _others_ran(trace: RequestTrace, before: ServerReading | None, after: ServerReading) -> bool:
    """Whether the readings show requests of other clients: one that ran before ours, or more tokens than ours has."""
    if before is not None and (before.num_running or before.num_waiting):
        return True
    ours = None if trace.usage is None else trace.usage.completion_tokens
    generated = None if before is None else source.gain("generation_tokens", before, after)
    return ours is not None and generated is not None and generated > ours * 1.05 + 2


def object_of(value: Any) -> dict[str, Any]:
    """The value when it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def whole(value: Any, at_least: int = 1) -> int | None:
    """The value as a whole number when it is one (also written as text), not below `at_least`; else None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = int(value) if value.isdigit() else None
    if isinstance(value, float) and value == int(value):
        value = int(value)
    return value if isinstance(value, int) and value >= at_least else None


def ids_of(value: Any) -> list[int] | None:
    """The value when it is a list of token ids, else None."""
    if isinstance(value, list) and all(isinstance(entry, int) and not isinstance(entry, bool) for entry in value):
        return value
    return None
