"""Decode rounds of the embedded model through the engine, in process: plain steps, chains, trees.

A round is one step of the engine: draft, build, verify, compact, and the rest (scheduling, sampling, committing). The
prompt's prefix is computed once for each mode and reused from the radix cache; each turn decodes the same tokens
after it, greedily, and modes take turns. Ceiling: `round_floor`'s bytes at the rate at which as many are copied.
Peer: the plain step of the same turn; a round of 1.5 plain steps pays where it commits more than 1.5 tokens, and what
it commits is counted beside it. Greedy text soon repeats itself, which flatters drafters: the seconds don't depend on
it, the tokens a round do.

Leaves out several requests at once and contexts that take minutes to compute (`python -m benchmarks.decode`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import torch

from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.embedded import embedded_model_path
from deepdraft.infer.checkpoint.open import open_checkpoint
from deepdraft.infer.components.clock import Machine
from deepdraft.infer.components.round_floor import drafting_bytes, plain_bytes
from deepdraft.infer.components.turns import Timing, Watch
from deepdraft.infer.drafters.drafter import Drafter
from deepdraft.infer.drafters.open import embedded_drafter_path, open_drafter
from deepdraft.infer.engine import Engine
from deepdraft.infer.memory import available_bytes
from deepdraft.infer.models.load import load_model
from deepdraft.infer.request import Request, SamplingParams
from deepdraft.infer.settings import DEFAULT_PAGE_SIZE, DEFAULT_TREE_BUDGET, EngineSettings, SpeculationSettings
from deepdraft.infer.step_record import StepRecord
from deepdraft.infer.tokenizer.tokenizer import Tokenizer
from deepdraft.records.component import ComponentCase, ComponentRepeat
from deepdraft.units import tokens_text

Mode = Literal["plain", "chain", "tree"]
MODES: tuple[Mode, ...] = ("plain", "chain", "tree")
_SPARE_PAGES = 32
"""For trees, the drafter's block and what the cache still holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSettings:
    """What to run."""

    context_lens: tuple[int, ...] = (1_000, 16_000)
    modes: tuple[Mode, ...] = MODES
    """Plain runs in any case: it is the peer."""
    decode_len: int = 64
    """Tokens of each turn."""
    tree_budget: int = DEFAULT_TREE_BUDGET
    attention_backend: str = "auto"
    timing: Timing

    def __post_init__(self) -> None:
        """Raises UsageError for fewer than two tokens: the first belongs to no round."""
        if self.decode_len < 2:
            raise UsageError(f"a turn of {self.decode_len} tokens has no round", hint="--decode-len is 2 or more")


@dataclass(frozen=True, slots=True)
class _Turn:
    """One request of one mode, decoded."""

    token_ids: tuple[int, ...]
    steps: tuple[StepRecord, ...]
    """Its rounds: decode steps of the plain mode, verify steps of the others."""


def round_cases(settings: RoundSettings, pieces: Iterable[str], watch: Watch) -> Iterator[ComponentCase]:
    """Each context length's modes once they are all measured. `pieces`: text without end, of which prompts are made.

    Raises UsageError for more tokens than the model is made for, pools that don't fit, or text that ends too soon.
    """
    checkpoint = open_checkpoint(embedded_model_path())
    max_len = max(settings.context_lens) + settings.decode_len
    if max_len > checkpoint.config.max_context_len:
        raise UsageError(f"{max_len} tokens: the model is made for {checkpoint.config.max_context_len}")
    tokenizer = checkpoint.tokenizer()
    token_ids = _tokens(tokenizer, pieces, max(settings.context_lens))
    model = load_model(checkpoint)
    drafter = open_drafter("embedded", model)
    assert drafter is not None
    engine_settings = _engine_settings(settings, max_len)

    def engine(mode: Mode) -> Engine:
        if mode == "plain":
            return Engine(model, tokenizer, engine_settings)
        return Engine(model, tokenizer, engine_settings, drafter, _speculation(mode, settings, drafter))

    engines = {mode: engine(mode) for mode in MODES if mode == "plain" or mode in settings.modes}
    _check_memory(engines.values())
    return _cases(settings, engines, drafter, token_ids, watch)


def _cases(
    settings: RoundSettings, engines: dict[Mode, Engine], drafter: Drafter, token_ids: Sequence[int], watch: Watch
) -> Iterator[ComponentCase]:
    for context_len in sorted(settings.context_lens):
        prompt = tuple(token_ids[:context_len])
        for mode, engine in engines.items():
            if watch.is_asked_to_stop():
                return
            watch.report(f"{tokens_text(context_len)}: prefix, {mode}")
            _turn(engine, prompt, 1, f"{context_len}-{mode}-prefix", watch.is_asked_to_stop)
        watch.report(f"{tokens_text(context_len)}: rounds")
        yield from _at_length(settings, engines, drafter, prompt, watch)


def _at_length(
    settings: RoundSettings, engines: dict[Mode, Engine], drafter: Drafter, prompt: tuple[int, ...], watch: Watch
) -> Iterator[ComponentCase]:
    machine = Machine(rate_s=settings.timing.cell_s)
    read = {mode: _bytes(mode, drafter, len(prompt)) for mode in engines}
    repeats: dict[Mode, list[ComponentRepeat]] = {mode: [] for mode in engines}
    num_different = dict.fromkeys(engines, 0)
    for index in range(settings.timing.num_repeats):
        turns: dict[Mode, _Turn] = {}
        rates: dict[Mode, float] = {}
        for mode in reversed(engines) if index % 2 else engines:
            if watch.is_asked_to_stop():
                break
            rates[mode] = machine.copy_bytes_s(read[mode])
            turns[mode] = _turn(
                engines[mode], prompt, settings.decode_len, f"{len(prompt)}-{mode}-{index}", watch.is_asked_to_stop
            )
        if watch.is_asked_to_stop() or not all(turn.steps for turn in turns.values()):
            break
        for mode, turn in turns.items():
            repeats[mode].append(_repeat(turn, turns["plain"], rates[mode], is_plain=mode == "plain"))
            num_different[mode] += turn.token_ids != turns["plain"].token_ids
    for mode in engines:
        if repeats[mode]:
            yield ComponentCase(
                name=f"{tokens_text(len(prompt))}, {mode}",
                facts={"context_len": len(prompt), "mode": mode, **_drafts(mode, settings, drafter)},
                work={"copy": read[mode]},
                repeats=tuple(repeats[mode]),
                note=_different(num_different[mode], len(repeats[mode])),
            )


def _turn(
    engine: Engine, prompt: tuple[int, ...], num_tokens: int, request_id: str, is_asked_to_stop: Callable[[], bool]
) -> _Turn:
    """Run one request to its end, or to the first step after the stop was asked for."""
    sampling = SamplingParams(max_tokens=num_tokens, temperature=0.0, ignore_eos=True)
    engine.submit(Request(request_id=request_id, prompt_token_ids=prompt, sampling=sampling))
    found: list[int] = []
    first = engine.steps.num_steps
    while engine.has_work:
        for output in engine.step():
            found += output.token_ids
        if is_asked_to_stop():
            engine.abort(request_id)
    num_new = engine.steps.num_steps - first
    records = tuple(engine.steps)[-num_new:] if num_new else ()
    has_rounds = any(record.kind == "verify" for record in records)
    return _Turn(
        tuple(found), tuple(record for record in records if record.kind == ("verify" if has_rounds else "decode"))
    )


def _repeat(turn: _Turn, plain: _Turn, copy_bytes_s: float, *, is_plain: bool) -> ComponentRepeat:
    """Medians over the turn's rounds."""

    def middle(seconds: Callable[[StepRecord], float]) -> float:
        return median(map(seconds, turn.steps))

    return ComponentRepeat(
        seconds=middle(lambda step: step.seconds),
        rates={"copy": copy_bytes_s},
        peers_s={} if is_plain else {"plain": median(step.seconds for step in plain.steps)},
        parts_s={
            "draft": middle(lambda step: step.draft_s),
            "build": middle(lambda step: step.build_s),
            "verify": middle(lambda step: step.forward_s),
            "compact": middle(lambda step: step.compact_s),
            "other": middle(lambda step: step.other_s),
        },
        counts={
            "rounds": float(len(turn.steps)),
            "tokens": float(sum(step.num_committed_tokens for step in turn.steps)),
            "rows": float(sum(step.num_tokens for step in turn.steps)),
        },
    )


def _bytes(mode: Mode, drafter: Drafter, context_len: int) -> float:
    folder = embedded_model_path()
    least = plain_bytes(folder, context_len)
    return least if mode == "plain" else least + drafting_bytes(folder, embedded_drafter_path(), drafter, context_len)


def _drafts(mode: Mode, settings: RoundSettings, drafter: Drafter) -> dict[str, Any]:
    if mode == "plain":
        return {}
    return {"tree_budget": drafter.draft_len if mode == "chain" else settings.tree_budget}


def _different(num_different: int, num_turns: int) -> str | None:
    return f"{num_different} of {num_turns} outputs are not those of plain decoding" if num_different else None


def _speculation(mode: Mode, settings: RoundSettings, drafter: Drafter) -> SpeculationSettings:
    """Every round drafts, whether or not it pays."""
    if mode == "chain":
        return SpeculationSettings(mode="always", tree_budget=drafter.draft_len, tree_top_k=1)
    return SpeculationSettings(mode="always", tree_budget=settings.tree_budget)


def _engine_settings(settings: RoundSettings, max_len: int) -> EngineSettings:
    num_pages = -(-max_len // DEFAULT_PAGE_SIZE) + -(-settings.tree_budget // DEFAULT_PAGE_SIZE) + _SPARE_PAGES
    return EngineSettings(
        max_context_len=max_len,
        kv_pool_tokens=num_pages * DEFAULT_PAGE_SIZE,
        max_running_requests=1,
        attention_backend=settings.attention_backend,
        max_step_records=max(4096, settings.decode_len + 8),
    )


def _check_memory(engines: Iterable[Engine]) -> None:
    needed = sum(engine.pool.num_pages * engine.pool.layout.bytes_per_page for engine in engines)
    free = available_bytes(torch.device("cpu"))
    if needed > free:
        raise UsageError(
            f"the modes' pools take {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free",
            hint="give a shorter --context-len, or fewer --mode",
        )


def _tokens(tokenizer: Tokenizer, pieces: Iterable[str], num_tokens: int) -> list[int]:
    """At least as many tokens of the text as are wanted."""
    found: list[int] = []
    for piece in pieces:
        found += tokenizer.encode(piece, add_special=not found)
        if len(found) >= num_tokens:
            return found
    raise UsageError(f"the text has {len(found)} tokens, {num_tokens} are wanted", hint="--text code has no end")
