"""The simulated engine: queue, slots, KV pool, prefix cache, counters, and the schedule of every request.

It decides when tokens exist. It knows nothing of HTTP, of events or of any dialect; whoever reads a `Generation`
shapes its tokens into bytes. Each request keeps its own clock: its due times add up from its admission, so that a
late wake-up is never carried on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from itertools import islice

from deepdraft.simulate.ask import Ask
from deepdraft.simulate.cache import PrefixCache
from deepdraft.simulate.clock import sleep_until
from deepdraft.simulate.physics import Chance, prefill_s, step_s
from deepdraft.simulate.spec import SimulateSpec
from deepdraft.simulate.text import needle_answer, words
from deepdraft.simulate.tokenizer import EOS_ID, Tokenizer
from deepdraft.simulate.truth import RequestTruth, Step, TokenKind

_NATURAL_LEN = 256
"""Where an answer ends that nobody limited."""


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token. The end-of-sequence token has no text."""

    text: str
    token_id: int
    kind: TokenKind


@dataclass(slots=True)
class Counters:
    """What the metrics endpoints count, over all requests since the start."""

    num_requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generation_tokens: int = 0
    prefill_time_s: float = 0.0
    decode_time_s: float = 0.0
    ttft_sum_s: float = 0.0
    num_decode_steps: int = 0
    num_verify_steps: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_by_position: list[int] = field(default_factory=list)
    max_sequence_len: int = 0


@dataclass(slots=True)
class SpecFigures:
    """Speculation figures since the last flush, and what was last shown of them."""

    num_verify_steps: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    committed_tokens: int = 0
    shown_accept_len: float | None = None
    shown_accept_rate: float | None = None


@dataclass(slots=True)
class Generation:
    """One request on its way. Times are time.monotonic() in seconds."""

    ask: Ask
    truth: RequestTruth
    chance: Chance
    output: list[Token]
    """All it will say, decided beforehand."""
    finish_reason: str
    slowdown: float
    """Factor on all its durations."""
    extra_prefill_s: float
    """Warm-up, injected lateness."""
    reserved_tokens: int
    prompt_len: int
    cached_len: int = 0
    was_queued: bool = False
    prefill_start_s: float = 0.0
    prefill_due_s: float = 0.0
    last_due_s: float = 0.0
    num_made: int = 0
    created_s: float = field(default_factory=time.time)
    accepted_lens: list[int] = field(default_factory=list)
    draft_lens: list[int] = field(default_factory=list)

    @property
    def is_finished(self) -> bool:
        """Whether all tokens are made."""
        return self.num_made >= len(self.output)

    @property
    def prefill_time_s(self) -> float:
        """Length of the prefill by the schedule."""
        return self.prefill_due_s - self.prefill_start_s

    @property
    def decode_time_s(self) -> float:
        """From the first token to the latest, by the schedule."""
        return max(0.0, self.last_due_s - self.prefill_due_s)


class Engine:
    """Runs generations by the spec's physics."""

    def __init__(self, spec: SimulateSpec, tokenizer: Tokenizer) -> None:
        self.spec = spec
        self.physics = spec.physics
        self.confounds = spec.confounds
        self.tokenizer = tokenizer
        capacity = spec.confounds.prefix_cache_capacity
        self.cache = PrefixCache(
            capacity=spec.physics.kv_pool_tokens if capacity is None else capacity,
            page_size=spec.physics.page_size,
        )
        self.running: list[Generation] = []
        self._waiting: deque[tuple[Generation, asyncio.Future[None]]] = deque()
        self.restart()

    def restart(self) -> None:
        """Forget what a process that ends would forget: cache and counters."""
        self.cache.clear()
        self.counters = Counters(accepted_by_position=[0] * (self.physics.max_committed_len - 1))
        self.spec_figures = SpecFigures()
        self.started_at_s = time.time()
        self._started_s = time.monotonic()

    # --- what the endpoints show

    @property
    def num_running(self) -> int:
        """Running requests, other clients' included."""
        return len(self.running) + self.confounds.background_requests

    @property
    def num_waiting(self) -> int:
        """Requests waiting for a slot or for room in the pool."""
        return len(self._waiting)

    @property
    def used_tokens(self) -> int:
        """Tokens of the KV pool reserved by running requests."""
        return sum(generation.reserved_tokens for generation in self.running)

    @property
    def background_tokens(self) -> int:
        """Output tokens made for other clients so far."""
        if not self.confounds.background_requests:
            return 0
        return int(self.confounds.background_tok_s * (time.monotonic() - self._started_s))

    def flush(self) -> bool:
        """Empty the prefix cache and reset the speculation figures; False when requests run or wait."""
        if self.confounds.flush == "refused" or self.num_running or self.num_waiting:
            return False
        if self.confounds.flush == "works":
            self.cache.clear()
            self.spec_figures = SpecFigures()
        return True

    # --- one request

    def prepare(self, ask: Ask, truth: RequestTruth, *, late_s: float = 0.0) -> Generation:
        """Decide what a request will say and how fast; nothing runs yet."""
        confounds = self.confounds
        index = truth.ordinal - 1
        prompt_len = len(ask.prompt_ids)
        output, finish_reason = self._output(ask, truth.ordinal, prompt_len)
        slowdown = max(0.05, 1.0 + confounds.drift_frac * index)
        if confounds.background_requests:
            slowdown *= confounds.background_slowdown
        extra_s = late_s + confounds.first_token_delay_s
        if index < confounds.slow_first_requests:
            extra_s += confounds.slow_first_s
        truth.prompt_len = prompt_len
        truth.max_tokens = ask.max_tokens
        return Generation(
            ask=ask,
            truth=truth,
            chance=Chance(self.physics, truth.ordinal),
            output=output,
            finish_reason=finish_reason,
            slowdown=slowdown,
            extra_prefill_s=extra_s,
            reserved_tokens=min(prompt_len + len(output), self.physics.kv_pool_tokens),
            prompt_len=prompt_len,
        )

    @contextlib.asynccontextmanager
    async def admitted(self, generation: Generation) -> AsyncIterator[None]:
        """Wait for a slot and room in the pool, hold both for the block, and start the prefill."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((generation, ready))
        try:
            self._admit()
            generation.was_queued = not ready.done()
            await ready
        except asyncio.CancelledError:
            self._waiting = deque(entry for entry in self._waiting if entry[0] is not generation)
            if generation in self.running:
                self.running.remove(generation)
            self._admit()
            raise
        try:
            yield
        finally:
            self.running.remove(generation)
            self._remember(generation, with_output=True)
            self._admit()

    async def commits(self, generation: Generation) -> AsyncGenerator[list[Token]]:
        """The tokens of the prefill, then those of each step, each when it is due."""
        await sleep_until(generation.prefill_due_s)
        self._count_prefill(generation)
        yield self._make(generation, min(self.confounds.first_event_len, len(generation.output)))
        while not generation.is_finished:
            due_s = self._step(generation)
            await sleep_until(due_s)
            yield self._make(generation, self._count_step(generation))

    # --- inside

    def _output(self, ask: Ask, ordinal: int, prompt_len: int) -> tuple[list[Token], str]:
        confounds = self.confounds
        limit = ask.max_tokens if ask.max_tokens is not None else _NATURAL_LEN
        finish_reason = "length" if ask.max_tokens is not None else "stop"
        room = max(1, self.physics.hard_limit_len - prompt_len)
        if limit > room:
            limit, finish_reason = room, "length"
        answer = needle_answer(ask.prompt_text, confounds, self.tokenizer) or []
        ends_at = len(answer) + 1 if answer else None
        if confounds.eos_at is not None:
            ends_at = min(ends_at or confounds.eos_at, confounds.eos_at)
        if ends_at is not None and (confounds.eos_beats_ignore_eos or not ask.ignores_eos):
            ends_at = max(ends_at, ask.min_tokens)
            if ends_at <= limit:
                limit, finish_reason = ends_at, "stop"
        if confounds.output_cap is not None and confounds.output_cap < limit:
            limit, finish_reason = confounds.output_cap, "length"
        num_words = limit - 1 if finish_reason == "stop" else limit
        texts = answer[:num_words]
        texts += islice(words(ordinal + self.physics.seed, confounds), num_words - len(texts))
        ids = self.tokenizer.ids(texts)
        kinds = self._kinds(ask, limit)
        output = [Token(text, token_id, kind) for text, token_id, kind in zip(texts, ids, kinds, strict=False)]
        if finish_reason == "stop":
            output.append(Token("", EOS_ID, kinds[-1]))
        return output, finish_reason

    def _kinds(self, ask: Ask, output_len: int) -> list[TokenKind]:
        confounds = self.confounds
        if ask.shape != "chat":
            return ["content"] * output_len
        reasoning_len = output_len if confounds.only_reasoning else min(confounds.reasoning_len, output_len)
        rest: TokenKind = "tool" if confounds.tool_calls else "content"
        reasoning: list[TokenKind] = ["reasoning"] * reasoning_len
        return reasoning + [rest] * (output_len - reasoning_len)

    def _admit(self) -> None:
        """Start the requests at the head of the queue as long as they fit."""
        while self._waiting and len(self.running) < self.physics.max_running:
            generation, ready = self._waiting[0]
            if self.running and self.used_tokens + generation.reserved_tokens > self.physics.kv_pool_tokens:
                return
            self._waiting.popleft()
            self.running.append(generation)
            self._start(generation)
            if not ready.done():
                ready.set_result(None)

    def _start(self, generation: Generation) -> None:
        ask = generation.ask
        if self.confounds.prefix_cache and ask.uses_cache:
            generation.cached_len = self.cache.match_len(ask.prompt_ids, namespace=ask.cache_namespace)
        duration_s = prefill_s(
            self.physics,
            num_uncached=generation.prompt_len - generation.cached_len,
            num_cached=generation.cached_len,
        )
        duration_s = duration_s * generation.slowdown * generation.chance.noise() + generation.extra_prefill_s
        truth = generation.truth
        # A request that did not wait began when it was received, however long reading it took.
        generation.prefill_start_s = time.monotonic() if generation.was_queued else truth.received_s
        generation.prefill_due_s = generation.last_due_s = generation.prefill_start_s + duration_s
        truth.admitted_s = generation.prefill_start_s
        truth.prefill_end_s = generation.prefill_due_s
        truth.cached_len = generation.cached_len

    def _count_prefill(self, generation: Generation) -> None:
        counters = self.counters
        counters.num_requests += 1
        counters.prompt_tokens += generation.prompt_len
        counters.cached_tokens += generation.cached_len
        counters.prefill_time_s += generation.prefill_time_s
        counters.ttft_sum_s += generation.prefill_due_s - generation.truth.received_s
        self._remember(generation, with_output=False)

    def _step(self, generation: Generation) -> float:
        """Put the next step on the request's schedule; returns when it ends."""
        start_s = generation.last_due_s
        # The token sampled last is not in the cache yet; whatever came with the first one is.
        context_len = generation.prompt_len + generation.num_made - 1
        duration_s = step_s(self.physics, context_len=context_len, num_running=len(self.running))
        duration_s *= generation.slowdown * generation.chance.noise()
        num_left = len(generation.output) - generation.num_made
        draw = generation.chance.draw(num_left, accepted_past_end=self.confounds.accepted_past_end)
        generation.last_due_s = start_s + duration_s
        generation.truth.steps.append(
            Step(start_s, generation.last_due_s, context_len, draw.draft_len, draw.accepted_len, draw.committed_len)
        )
        return generation.last_due_s

    def _count_step(self, generation: Generation) -> int:
        """Count the step that just ended; returns its committed length."""
        step = generation.truth.steps[-1]
        counters, figures = self.counters, self.spec_figures
        counters.num_decode_steps += 1
        counters.decode_time_s += step.end_s - step.start_s
        if self.physics.is_speculative:
            generation.draft_lens.append(step.draft_len)
            generation.accepted_lens.append(step.accepted_len)
            counters.num_verify_steps += 1
            counters.draft_tokens += step.draft_len
            counters.accepted_tokens += step.accepted_len
            for position in range(step.accepted_len):
                counters.accepted_by_position[position] += 1
            figures.num_verify_steps += 1
            figures.draft_tokens += step.draft_len
            figures.accepted_tokens += step.accepted_len
            figures.committed_tokens += step.committed_len
            if counters.num_decode_steps % self.spec.surface.decode_log_interval == 0:
                figures.shown_accept_len = figures.committed_tokens / figures.num_verify_steps
                figures.shown_accept_rate = figures.accepted_tokens / figures.draft_tokens
        return step.committed_len

    def _make(self, generation: Generation, num_tokens: int) -> list[Token]:
        made = generation.output[generation.num_made : generation.num_made + num_tokens]
        generation.num_made += len(made)
        generation.truth.output_len = generation.num_made
        self.counters.generation_tokens += len(made)
        self.counters.max_sequence_len = max(
            self.counters.max_sequence_len, generation.prompt_len + generation.num_made
        )
        if generation.is_finished:
            generation.truth.finish_reason = generation.finish_reason
        return made

    def _remember(self, generation: Generation, *, with_output: bool) -> None:
        """Put what is computed into the prefix cache: the prompt, and all but the last output token."""
        if not self.confounds.prefix_cache or (not generation.num_made and with_output):
            return
        ids = generation.ask.prompt_ids
        if with_output:
            ids = ids + [token.token_id for token in generation.output[: generation.num_made - 1]]
        self.cache.insert(ids, namespace=generation.ask.cache_namespace)
