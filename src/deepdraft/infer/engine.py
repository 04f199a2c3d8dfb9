"""The engine: submit requests, then step until there is no work.

    schedule -> draft -> run -> choose -> compact -> commit

Drafting and what belongs to it (`speculation`) is left out where there is no drafter. Single-threaded: only the
thread that steps it may touch it. Text, HTTP and clocks of requests are the server's.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict

import torch

from deepdraft.infer.commit import Committed, commit
from deepdraft.infer.control.decision import Decision
from deepdraft.infer.drafters.deferred import DeferredDrafter
from deepdraft.infer.drafters.drafter import Drafter
from deepdraft.infer.engine_stats import EngineCounts, EngineStats
from deepdraft.infer.errors import InvalidRequest, LawBroken
from deepdraft.infer.kernels.select import attention_backend
from deepdraft.infer.kv.layout import kv_layout
from deepdraft.infer.kv.page_table import PageTable
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.models.model import Model
from deepdraft.infer.page_ledger import PageLedger
from deepdraft.infer.pool_size import kv_dtype
from deepdraft.infer.request import Output, Request, RequestSpeculation
from deepdraft.infer.request_check import check_request
from deepdraft.infer.runner import Runner
from deepdraft.infer.scheduler import Schedule, Scheduler
from deepdraft.infer.sequence import Sequence
from deepdraft.infer.settings import DEFRAGMENT_MAX_PAGES, EngineSettings, SpeculationSettings
from deepdraft.infer.speculation import Speculator
from deepdraft.infer.step_record import Laps, Round, StepLog, StepRecord, speculation_after
from deepdraft.infer.tokenizer.detokenizer import Detokenizer
from deepdraft.infer.tokenizer.tokenizer import Tokenizer
from deepdraft.infer.verification import Chosen, Drafted, choose, compact, rounds, undrafted


class Engine:
    """One model, one pool, many requests; with a drafter, fewer steps for the same output."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        settings: EngineSettings,
        drafter: Drafter | None = None,
        speculation: SpeculationSettings | None = None,
    ) -> None:
        """Allocates the pool, in which the drafter's layers follow the model's. `speculation` is the drafter's; None:
        as SpeculationSettings says. Raises UsageError for settings that can't be used."""
        device = torch.device(settings.device)
        layout = kv_layout(
            model.config,
            page_size=settings.page_size,
            dtype=kv_dtype(settings.kv_dtype),
            drafter_layers=drafter.kv_layers if drafter else (),
        )
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
        attention = attention_backend(settings.attention_backend, device)
        self._drafter = DeferredDrafter(drafter) if drafter else None
        has_rows = drafter is not None and bool(drafter.kv_layers)
        self._runner = Runner(model, self.pool, attention, self._drafter if has_rows else None)
        self._speculator: Speculator | None = None
        self._simulated_len: float | None = None
        if self._drafter:
            chosen = speculation or SpeculationSettings()
            self._speculator = Speculator(
                self._drafter, chosen, ledger=self._ledger, pool=self.pool, attention=attention
            )
            self._simulated_len = chosen.simulate_acceptance_len
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
        if self._speculator:
            self._speculator.forget(sequence)
        self._counts.num_aborted_total += 1
        self._aborted.append(_output(sequence, Committed(num_tokens=0, text="", finish_reason="abort"), None))
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
        if self._drafter and not self._sequences:
            self._drafter.settle(self.pool)  # nothing waits where nothing runs
        if self.settings.defragment:
            self._defragment()
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
        for kind, of_kind in self.steps.totals.items():
            of_kind.check(kind)
        num_truncated = sum(total.num_truncated_rounds for total in totals)
        if num_truncated > self._counts.num_finished_total:
            raise LawBroken(
                f"{num_truncated} rounds dropped tokens, {self._counts.num_finished_total} requests ended"
            )
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
            speculation=RequestSpeculation() if self._speculator else None,
            distinct_prompt_ids=frozenset(request.prompt_token_ids if params.has_penalties else ()),
        )

    def _run(self, schedule: Schedule, started_s: float) -> list[Output]:
        laps = Laps(started_s)
        schedule_s = laps.lap_s()
        context_lens = tuple(part.start for part in schedule.parts)
        drafted = self._draft(schedule)
        ran = self._runner.run(drafted.parts)
        laps.lap_s()  # the parts of this one were measured where they happened
        chosen = choose(drafted, ran.logits, simulated_acceptance_len=self._simulated_len)
        sample_s = laps.lap_s()
        if drafted.has_trees:
            compact(drafted.parts, chosen, self.pool)
        compact_s = laps.lap_s() if drafted.has_trees else 0.0
        if schedule.kind == "prefill":
            self._advance(schedule)
        sampling = [part.sequence for part in drafted.parts if part.num_logit_rows]
        committed = [self._commit(sequence, tokens) for sequence, tokens in zip(sampling, chosen, strict=True)]
        commit_s = laps.lap_s()
        num_committed = sum(each.num_tokens for each in committed)
        is_prefill = schedule.kind == "prefill"
        is_simulated = self._simulated_len is not None
        verified = () if is_prefill else rounds(drafted, context_lens, chosen, committed, is_simulated=is_simulated)
        record = StepRecord(
            kind="verify" if drafted.has_trees else schedule.kind,
            started_s=started_s,
            seconds=laps.last_s - started_s,
            schedule_s=schedule_s,
            draft_s=drafted.draft_s + ran.absorb_s,
            build_s=drafted.build_s,
            forward_s=ran.forward_s,
            sample_s=sample_s,
            compact_s=compact_s,
            commit_s=commit_s,
            context_lens=context_lens,
            num_tokens=sum(len(part.token_ids) for part in drafted.parts),
            num_committed_tokens=0 if is_prefill else num_committed,
            num_first_tokens=num_committed if is_prefill else 0,
            num_preemptions=schedule.num_preemptions,
            rounds=tuple(each for each in verified if each),
            plain_decisions=_plain_decisions(drafted),
        )
        self.steps.add(record)
        self._counts.num_preemptions_total += schedule.num_preemptions
        if self._speculator and not is_prefill:
            _share(record, drafted, verified)
            self._speculator.observe(drafted, chosen, record.seconds)
            for part, tokens in zip(drafted.parts, committed, strict=True):
                if tokens.finish_reason is not None:
                    self._speculator.forget(part.sequence)
        return list(map(_output, sampling, committed, chosen))

    def _draft(self, schedule: Schedule) -> Drafted:
        if self._speculator is None or schedule.kind == "prefill":
            return undrafted(schedule.parts)
        return self._speculator.draft(schedule.parts)

    def _advance(self, schedule: Schedule) -> None:
        """A prefill's rows are in the pool now; a prompt that is through is there for others from now on."""
        for part in schedule.parts:
            table = part.sequence.page_table
            table.num_tokens = part.stop
            if table.num_tokens == part.sequence.prefill_len:
                self._ledger.publish(part.sequence)

    def _commit(self, sequence: Sequence, chosen: Chosen) -> Committed:
        """Append the tokens, as many as there is use for. The pool then holds, as ever, all of the sequence's but its
        last token: rows beyond are those of tokens that were dropped, and of drafts that were not accepted."""
        is_first = not sequence.has_output
        committed = commit(sequence, (token.token_id for token in chosen.sampled))
        sequence.page_table.num_tokens = len(sequence.token_ids) - 1
        counts = self._counts
        counts.num_completion_tokens_total += committed.num_tokens
        if is_first:
            counts.num_prompt_tokens_total += len(sequence.request.prompt_token_ids)
            counts.num_cached_tokens_total += sequence.num_cached_tokens or 0
        if committed.finish_reason is None:
            self._ledger.trim(sequence)
        else:
            counts.num_finished_total += 1
            self._ledger.publish(sequence)
            self._drop(sequence)
        return committed

    def _defragment(self) -> None:
        started_s = time.monotonic()
        if self._drafter:
            self._drafter.settle(self.pool)
        num_moved = 0
        for sequence in self._scheduler.running:
            num_moved += self._ledger.defragment(sequence, DEFRAGMENT_MAX_PAGES - num_moved)
        self._counts.num_moved_pages_total += num_moved
        self._counts.defragment_s_total += time.monotonic() - started_s

    def _drop(self, sequence: Sequence) -> None:
        del self._sequences[sequence.request.request_id]
        self._scheduler.remove(sequence)


def _share(record: StepRecord, drafted: Drafted, verified: tuple[Round | None, ...]) -> None:
    """Tell each request of a decode or verify step its part of it."""
    for part, its_round, decision in zip(drafted.parts, verified, drafted.decisions, strict=True):
        before = part.sequence.speculation or RequestSpeculation()
        part.sequence.speculation = speculation_after(before, record, len(part.token_ids), its_round, decision)


def _plain_decisions(drafted: Drafted) -> tuple[Decision, ...]:
    """Of the parts that were asked for drafts, or could have been, and have none."""
    if drafted.plan is None:
        return ()
    return tuple(decision for decision, tree in zip(drafted.decisions, drafted.trees, strict=True) if tree is None)


def _output(sequence: Sequence, committed: Committed, chosen: Chosen | None) -> Output:
    """`chosen`: what was to be committed; None: nothing."""
    token_ids = sequence.token_ids
    logprobs = [token.logprob for token in chosen.sampled[: committed.num_tokens]] if chosen else []
    return Output(
        request_id=sequence.request.request_id,
        token_ids=tuple(token_ids[len(token_ids) - committed.num_tokens :]),
        text=committed.text,
        logprobs=tuple(logprob for logprob in logprobs if logprob is not None),
        finish_reason=committed.finish_reason,
        num_prompt_tokens=len(sequence.request.prompt_token_ids),
        num_cached_tokens=sequence.num_cached_tokens or 0,
        num_output_tokens=sequence.num_output_tokens,
        queue_s=sequence.queue_s,
        speculation=sequence.speculation,
    )
