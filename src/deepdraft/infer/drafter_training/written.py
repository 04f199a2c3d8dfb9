"""What a drafter is to foresee: the target's own answers, written by the engine; and their file.

DFlash regenerates its training answers by the target (arXiv 2602.06036): a drafter that learned other text proposes
what the target would not write. Most answers are greedy, some sampled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from deepdraft.errors import UsageError
from deepdraft.infer.drafter_training.prompts import Prompt
from deepdraft.infer.engine import Engine
from deepdraft.infer.kernels.select import AUTO
from deepdraft.infer.models.model import Model
from deepdraft.infer.request import Request, SamplingParams
from deepdraft.infer.settings import EngineSettings
from deepdraft.infer.tokenizer.tokenizer import Tokenizer

TEMPERATURES = (0.0, 0.0, 0.0, 0.7)
"""Taken in turn by the prompts' numbers."""
MAX_RUNNING_REQUESTS = 64
PAGE_SIZE = 16
CHUNK_LEN = 4096


@dataclass(frozen=True, slots=True)
class Written:
    """One prompt and what stands after it."""

    number: int
    prompt: tuple[int, ...]
    temperature: float | None
    """None: the text's own continuation."""
    output: tuple[int, ...]


def own_continuation(prompt: Prompt) -> Written:
    """The text as it is."""
    return Written(prompt.number, prompt.token_ids, None, prompt.continuation)


def temperature_of(number: int) -> float:
    """The temperature that the answer to prompt `number` is written at."""
    return TEMPERATURES[number % len(TEMPERATURES)]


def answers(
    model: Model,
    tokenizer: Tokenizer,
    prompts: Sequence[Prompt],
    *,
    max_tokens: int,
    temperature: Callable[[int], float] = temperature_of,
    max_running_requests: int = MAX_RUNNING_REQUESTS,
    shared_text: Sequence[int] = (),
) -> Iterator[Written]:
    """The target's answers of at most `max_tokens` tokens, as they end. Sampled ones have the prompt's number as
    their seed, so an answer depends on its prompt and number alone. `shared_text`: what all prompts are beginnings
    of; it is put into the engine's prefix cache first."""
    if not prompts:
        return
    engine = _engine(model, tokenizer, prompts, max_tokens, max_running_requests, len(shared_text))
    if shared_text:
        sampling = SamplingParams(max_tokens=1, temperature=0.0)
        engine.submit(Request(request_id="text", prompt_token_ids=tuple(shared_text), sampling=sampling))
        while engine.has_work:
            engine.step()
    live: dict[str, tuple[Prompt, list[int]]] = {}
    waiting = iter(prompts)
    while _submit(engine, waiting, live, max_tokens, temperature, max_running_requests) or live:
        for output in engine.step():
            prompt, token_ids = live[output.request_id]
            token_ids.extend(output.token_ids)
            if output.finish_reason is not None:
                del live[output.request_id]
                yield Written(prompt.number, prompt.token_ids, temperature(prompt.number), tuple(token_ids))


def _engine(
    model: Model,
    tokenizer: Tokenizer,
    prompts: Sequence[Prompt],
    max_tokens: int,
    max_running_requests: int,
    shared_len: int,
) -> Engine:
    """Its pool has room for as many requests as may run, and for the shared text once."""
    longest = max(len(prompt.token_ids) for prompt in prompts)
    own_len = max_tokens + (0 if shared_len else longest)
    num_at_once = min(len(prompts), max_running_requests)
    num_pages = num_at_once * (-(-own_len // PAGE_SIZE) + 2) + -(-(shared_len + max_tokens) // PAGE_SIZE)
    settings = EngineSettings(
        max_context_len=max(longest, shared_len) + max_tokens,
        kv_pool_tokens=PAGE_SIZE * num_pages,
        page_size=PAGE_SIZE,
        chunk_len=CHUNK_LEN,
        max_running_requests=max_running_requests,
        attention_backend=AUTO,
    )
    return Engine(model, tokenizer, settings)


def _submit(
    engine: Engine,
    waiting: Iterator[Prompt],
    live: dict[str, tuple[Prompt, list[int]]],
    max_tokens: int,
    temperature: Callable[[int], float],
    max_running_requests: int,
) -> bool:
    """Submit as many as may run; whether one was."""
    is_one_new = False
    while len(live) < max_running_requests and (prompt := next(waiting, None)) is not None:
        sampling = SamplingParams(max_tokens=max_tokens, temperature=temperature(prompt.number), seed=prompt.number)
        request_id = str(prompt.number)
        engine.submit(Request(request_id=request_id, prompt_token_ids=prompt.token_ids, sampling=sampling))
        live[request_id] = (prompt, [])
        is_one_new = True
    return is_one_new


def append_written(written: Iterable[Written], file: Path) -> None:
    """Add lines to a file of answers."""
    with file.open("a", encoding="ascii") as stream:
        stream.writelines(json.dumps(asdict(one)) + "\n" for one in written)


def read_written(file: Path) -> list[Written]:
    """The answers of a file, by number; a torn last line is passed over. Raises UsageError for any other damage."""
    if not file.exists():
        return []
    lines = file.read_text(encoding="ascii").split("\n")
    found = {}
    for index, line in enumerate(lines[:-1]):  # behind the last line end is nothing, or a torn line
        try:
            fields = json.loads(line)
            one = Written(fields["number"], tuple(fields["prompt"]), fields["temperature"], tuple(fields["output"]))
        except (ValueError, KeyError, TypeError):
            raise UsageError(
                f"{file}, line {index + 1} is no answer", hint="delete the file to write it anew"
            ) from None
        found[one.number] = one
    return [found[number] for number in sorted(found)]
