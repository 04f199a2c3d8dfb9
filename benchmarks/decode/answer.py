"""One answer by one engine, as measured. What follows from it is `section`'s."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import msgspec

from deepdraft.infer.engine import Engine
from deepdraft.infer.request import Request, SamplingParams
from deepdraft.infer.step_record import StepRecord


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Decoding of one prompt under one mode. The token sampled by prefill, and prefill itself, are left out."""

    mode: str
    context_len: int
    tail_index: int
    copy_bytes_s: float
    """Read + write of a plain copy, measured just before the answers to this prompt."""
    prefill_s: float
    num_cached_tokens: int
    token_ids: tuple[int, ...]
    decode_s: float
    """Of all decode and verify steps, from call to return."""
    step_s: tuple[float, ...]
    """Of each of them"""
    forward_s: float
    draft_s: float
    build_s: float
    num_plain_steps: int
    """Steps in which nothing was verified."""
    reasons: dict[str, int]
    """Why each step with a drafter was what it was, as "round: pays" or "plain: probe"."""
    num_rounds: int
    num_nodes: int
    num_round_tokens: int
    """Tokens that rounds committed."""

    @property
    def key(self) -> tuple[int, int, str]:
        """What makes it this answer."""
        return self.context_len, self.tail_index, self.mode

    @property
    def num_decode_tokens(self) -> int:
        """Tokens of the steps."""
        return len(self.token_ids) - 1

    @property
    def token_s(self) -> float:
        """Seconds a token."""
        return self.decode_s / self.num_decode_tokens


def answer(
    engine: Engine,
    mode: str,
    prompt: Sequence[int],
    *,
    tail_index: int,
    decode_len: int,
    temperature: float,
    copy_bytes_s: float,
) -> Answer:
    """Ask, and step until the answer is complete. The engine must be idle."""
    sampling = SamplingParams(max_tokens=decode_len, temperature=temperature, seed=tail_index, ignore_eos=True)
    engine.submit(Request(request_id="asked", prompt_token_ids=tuple(prompt), sampling=sampling))
    token_ids: list[int] = []
    prefill_s, step_s, records = 0.0, [], []
    num_cached_tokens = 0
    while engine.has_work:
        has_begun = bool(token_ids)
        started_s = time.perf_counter()
        outputs = engine.step()
        seconds = time.perf_counter() - started_s
        if has_begun:
            step_s.append(seconds)
            records.append(engine.steps[-1])
        else:
            prefill_s += seconds
        for output in outputs:
            token_ids += output.token_ids
            num_cached_tokens = output.num_cached_tokens
    rounds = [each for record in records for each in record.rounds]
    return Answer(
        mode=mode,
        context_len=len(prompt),
        tail_index=tail_index,
        copy_bytes_s=copy_bytes_s,
        prefill_s=prefill_s,
        num_cached_tokens=num_cached_tokens,
        token_ids=tuple(token_ids),
        decode_s=sum(step_s),
        step_s=tuple(step_s),
        forward_s=sum(record.forward_s for record in records),
        draft_s=sum(record.draft_s for record in records),
        build_s=sum(record.build_s for record in records),
        num_plain_steps=sum(not record.rounds for record in records),
        reasons=_reasons(records),
        num_rounds=len(rounds),
        num_nodes=sum(each.num_nodes for each in rounds),
        num_round_tokens=sum(each.committed_len for each in rounds),
    )


def _reasons(records: Sequence[StepRecord]) -> dict[str, int]:
    rounds = [each.decision for record in records for each in record.rounds if each.decision is not None]
    plain = [decision for record in records for decision in record.plain_decisions]
    return Counter([f"round: {each.reason}" for each in rounds] + [f"plain: {each.reason}" for each in plain])
