"""The engine: submit requests, then step until there is no work. schedule -> run -> sample -> commit.

Single-threaded: only the thread that steps it may touch it. Text, HTTP and clocks of requests are the server's.

Where drafting comes in: between `schedule` and `run` a drafter proposes tokens for the decode parts, which become
parts to verify (drafts behind the bonus token, tail mask and depths of a tree, logits of all rows). After the run
every row is sampled as here, a walk follows the sampled tokens down the tree, `PagePool.move` packs the rows of the
path behind the prefix, and `commit` takes the path's tokens at once and truncates inside.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict

import torch

from deepdraft.infer.commit import Committed, commit
from deepdraft.infer.engine_stats import EngineCounts, EngineStats
from deepdraft.infer.errors import InvalidRequest, LawBroken
from deepdraft.infer.kernels.select import attention_backend
from deepdraft.infer.kv.layout import kv_layout
from deepdraft.infer.kv.page_table import PageTable
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.models.model import Model
from deepdraft.infer.page_ledger import PageLedger
from deepdraft.infer.pool_size import kv_dtype
from deepdraft.infer.request import Output, Request, TokenLogprob
from deepdraft.infer.request_check import check_request
from deepdraft.infer.runner import Runner
from deepdraft.infer.sampler import Sampled, SamplingRow, sample
from deepdraft.infer.scheduler import Schedule, Scheduler
from deepdraft.infer.sequence import Sequence
from deepdraft.infer.settings import EngineSettings
from deepdraft.infer.step_record import StepLog, StepRecord
from deepdraft.infer.tokenizer.detokenizer import Detokenizer
from deepdraft.infer.tokenizer.tokenizer import Tokenizer


class Engine:
    """One model, one pool, many requests."""

    def __init__(self, model: Model, tokenizer: Tokenizer, settings: EngineSettings) -> None:
        """Allocates the pool. Raises UsageError for settings that can't be used."""
        device = torch.device(settings.device)
        layout = kv_layout(model.config, page_size=settings.page_size, dtype=kv_dtype(settings.kv_dtype))
        self.settings = settings
        self.pool = PagePool(layout, settings.kv_pool_tokens // settings.page_size, device)
        self.steps = StepLog(settings.max_step_records)
        """Bounded; `steps.totals` and `steps.num_steps` cover all."""
        self._model = model
        self._tokenizer = tokenizer
        self._eos_token_ids = frozenset((*model.config.eos_token_ids, *tokenizer.eos_token_ids))
        self._ledger = PageLedger(self.pool, has_radix_cache=settings.has_radix_cache)
        self._scheduler = Scheduler(
            self._ledger, chunk_len=settings.chunk_len, max_running_requests=settings.max_running_requests
        )
        self._runner = Runner(model, self.pool, attention_backend(settings.attention_backend, device))
        self._sequences: dict[str, Sequence] = {}
        self._aborted: list[Output] = []
        self._counts = EngineCounts()

    def submit(self, request: Request) -> None:
        """Queue a request. Raises InvalidRequest, ContextTooLong or PoolTooSmall, and is as before then."""
        check_request(request, self.settings, vocab_size=self._model.config.vocab_size)
        if request.request_id in self._sequences:
            raise InvalidRequest("request_id", f"request {request.request_id} is here already")
        sequence = self._sequence(request)
        self._sequences[request.request_id] = sequence
        self._scheduler.add(sequence)
        self._counts.num_submitted_total += 1

    def abort(self, request_id: str) -> bool:
        """Drop a request, in whatever state it is; pages that are its own are free at once. Its last Output
        (finish_reason "abort") comes with the next step. False: it is not here, or no longer."""
        sequence = self._sequences.get(request_id)
        if sequence is None:
            return False
        self._drop(sequence)
        self._counts.num_aborted_total += 1
        nothing = Committed(num_tokens=0, text="", finish_reason="abort")
        self._aborted.append(_output(sequence, nothing, ()))
        return True

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._sequences or self._aborted)

    def step(self) -> tuple[Output, ...]:
        """At most one forward pass. An Output for each request that got tokens or ended; a prefill pass that leaves
        prompts unfinished may give none."""
        outputs, self._aborted = self._aborted, []
        started_s = time.monotonic()
        schedule = self._scheduler.schedule()
        if schedule is not None:
            outputs += self._run(schedule, started_s)
        if self.settings.is_checked:
            self.check()
        return tuple(outputs)

    def flush_cache(self) -> bool:
        """Empty the radix cache; False, and nothing happens, while requests run or wait."""
        return not self._sequences and self._ledger.clear()

    def stats(self) -> EngineStats:
        """The state now; cheap."""
        running = self._scheduler.running
        return EngineStats(
            num_pool_pages=self.pool.num_pages,
            num_free_pages=self._ledger.num_free_pages,
            num_held_pages=sum(sequence.num_private_pages for sequence in running),
            num_cached_pages=self._ledger.num_cached_pages,
            num_evictable_pages=self._ledger.num_evictable_pages,
            num_running=len(running),
            num_waiting=len(self._scheduler.waiting),
            **asdict(self._counts),
        )

    def check(self) -> None:
        """Raises LawBroken where pages, the queue or tokens don't add up."""
        self._ledger.check(self._scheduler.running)
        self._scheduler.check()
        totals = self.steps.totals.values()
        num_stepped = sum(total.num_committed_tokens + total.num_first_tokens for total in totals)
        if num_stepped != self._counts.num_completion_tokens_total:
            raise LawBroken(
                f"steps committed {num_stepped} tokens, requests got {self._counts.num_completion_tokens_total}"
            )

    def _sequence(self, request: Request) -> Sequence:
        params = request.sampling
        eos_token_ids = frozenset[int]() if params.ignore_eos else self._eos_token_ids
        return Sequence(
            request=request,
            arrival_index=self._counts.num_submitted_total,
            seed=secrets.randbits(64) if params.seed is None else params.seed,
            end_token_ids=eos_token_ids | frozenset(params.stop_token_ids),
            token_ids=list(request.prompt_token_ids),
            page_table=PageTable(self.settings.page_size),
            detokenizer=Detokenizer(self._tokenizer, params.stop),
        )

    def _run(self, schedule: Schedule, started_s: float) -> list[Output]:
        scheduled_s = time.monotonic()
        context_lens = tuple(part.start for part in schedule.parts)
        logits = self._runner.run(schedule.parts).logits
        forwarded_s = time.monotonic()
        sampling = [part.sequence for part in schedule.parts if part.num_logit_rows]
        sampled = sample(logits, [_sampling_row(sequence) for sequence in sampling])
        sampled_s = time.monotonic()
        self._advance(schedule)
        outputs = [self._commit(sequence, token) for sequence, token in zip(sampling, sampled, strict=True)]
        is_prefill = schedule.kind == "prefill"
        committed_s = time.monotonic()
        self.steps.add(
            StepRecord(
                kind=schedule.kind,
                started_s=started_s,
                seconds=committed_s - started_s,
                schedule_s=scheduled_s - started_s,
                forward_s=forwarded_s - scheduled_s,
                sample_s=sampled_s - forwarded_s,
                commit_s=committed_s - sampled_s,
                context_lens=context_lens,
                num_tokens=sum(len(part.token_ids) for part in schedule.parts),
                num_committed_tokens=0 if is_prefill else len(outputs),
                num_first_tokens=len(outputs) if is_prefill else 0,
                num_preemptions=schedule.num_preemptions,
            )
        )
        self._counts.num_preemptions_total += schedule.num_preemptions
        return outputs

    def _advance(self, schedule: Schedule) -> None:
        """The parts' rows are in the pool now; a prompt that is through is there for others from now on."""
        for part in schedule.parts:
            table = part.sequence.page_table
            table.num_tokens = part.stop
            if schedule.kind == "prefill" and table.num_tokens == part.sequence.prefill_len:
                self._ledger.publish(part.sequence)

    def _commit(self, sequence: Sequence, sampled: Sampled) -> Output:
        is_first = not sequence.has_output
        committed = commit(sequence, (sampled.token_id,))
        counts = self._counts
        counts.num_completion_tokens_total += committed.num_tokens
        if is_first:
            counts.num_prompt_tokens_total += len(sequence.request.prompt_token_ids)
            counts.num_cached_tokens_total += sequence.num_cached_tokens or 0
        if committed.finish_reason is not None:
            counts.num_finished_total += 1
            self._ledger.publish(sequence)
            self._drop(sequence)
        logprobs = (sampled.logprob,) if sampled.logprob is not None else ()
        return _output(sequence, committed, logprobs)

    def _drop(self, sequence: Sequence) -> None:
        del self._sequences[sequence.request.request_id]
        self._scheduler.remove(sequence)


def _sampling_row(sequence: Sequence) -> SamplingRow:
    return SamplingRow(
        params=sequence.request.sampling,
        seed=sequence.seed,
        position=len(sequence.token_ids),
        blocked_token_ids=sequence.blocked_token_ids,
    )


def _output(sequence: Sequence, committed: Committed, logprobs: tuple[TokenLogprob, ...]) -> Output:
    token_ids = sequence.token_ids
    return Output(
        request_id=sequence.request.request_id,
        token_ids=tuple(token_ids[len(token_ids) - committed.num_tokens :]),
        text=committed.text,
        logprobs=logprobs,
        finish_reason=committed.finish_reason,
        num_prompt_tokens=len(sequence.request.prompt_token_ids),
        num_cached_tokens=sequence.num_cached_tokens or 0,
        num_output_tokens=sequence.num_output_tokens,
    )
