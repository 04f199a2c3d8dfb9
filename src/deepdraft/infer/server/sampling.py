"""From a body to SamplingParams: ranges and defaults, OpenAI's where it has the field, vLLM's where it has not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deepdraft.infer.request import SamplingParams
from deepdraft.infer.request_check import MAX_PENALTY
from deepdraft.infer.server.protocol import GenerationBody
from deepdraft.infer.server.refusal import Refused

DEFAULT_COMPLETION_TOKENS = 16
MAX_STOP_STRINGS = 16
MAX_STOP_LEN = 1024
"""Characters of one stop string."""
MAX_TOP_LOGPROBS = 20
_MAX_TOKENS = 2**31 - 1
_SEEDS = 2**63


def sampling_params(
    body: GenerationBody, *, asked_max_tokens: int | None, max_tokens_name: str, num_logprobs: int | None
) -> SamplingParams:
    """How tokens are chosen. `asked_max_tokens` None stands as 0, for `with_default_max_tokens` to fill in.

    Raises Refused (400), naming the field.
    """
    max_tokens = asked_max_tokens
    if max_tokens is not None:
        _check(max_tokens_name, max_tokens, 1, _MAX_TOKENS)
    min_tokens = body.min_tokens or 0
    _check("min_tokens", min_tokens, 0, _MAX_TOKENS)
    if max_tokens is not None and min_tokens > max_tokens:
        raise Refused(
            400, f"min_tokens is {min_tokens}, more than {max_tokens_name}: {max_tokens}", param="min_tokens"
        )
    temperature = 1.0 if body.temperature is None else body.temperature
    _check("temperature", temperature, 0, 2)
    top_p = 1.0 if body.top_p is None else body.top_p
    _check("top_p", top_p, 0, 1)
    if top_p == 0:
        raise Refused(400, "top_p must be above 0; for greedy decoding set temperature to 0", param="top_p")
    top_k = None if body.top_k in (None, 0, -1) else body.top_k
    if top_k is not None:
        _check("top_k", top_k, 1, _MAX_TOKENS)
    if body.seed is not None:
        _check("seed", body.seed, -_SEEDS, _SEEDS - 1)
    if num_logprobs is not None:
        _check("logprobs", num_logprobs, 0, MAX_TOP_LOGPROBS)
    return SamplingParams(
        max_tokens=max_tokens or 0,
        min_tokens=min_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        presence_penalty=_penalty("presence_penalty", body.presence_penalty),
        frequency_penalty=_penalty("frequency_penalty", body.frequency_penalty),
        repetition_penalty=_repetition_penalty(body.repetition_penalty),
        seed=None if body.seed is None else body.seed % _SEEDS,
        stop=_stop_strings(body.stop),
        stop_token_ids=_stop_token_ids(body.stop_token_ids),
        ignore_eos=bool(body.ignore_eos),
        num_logprobs=num_logprobs,
    )


def with_default_max_tokens(sampling: SamplingParams, max_tokens: int) -> SamplingParams:
    """With an output limit where the body had none: at least 1 and min_tokens, so that the engine can judge it."""
    if sampling.max_tokens:
        return sampling
    return replace(sampling, max_tokens=max(1, max_tokens, sampling.min_tokens))


def of_choice(sampling: SamplingParams, choice: int) -> SamplingParams:
    """For one of several choices of a prompt: with a seed of its own, or all would be the same."""
    if sampling.seed is None or choice == 0:
        return sampling
    return replace(sampling, seed=(sampling.seed + choice) % _SEEDS)


def num_choices(body: GenerationBody) -> int:
    """`n`. Raises Refused (400) for none, for best_of above it, and for several that would all be the same."""
    count = 1 if body.n is None else body.n
    _check("n", count, 1, _MAX_TOKENS)
    if body.best_of is not None and body.best_of != count:
        raise Refused(400, "best_of is not supported beyond n", param="best_of", code="unsupported_parameter")
    return count


def check_stream_options(body: GenerationBody) -> None:
    """Raises Refused (400) for options of a stream that was not asked for."""
    if body.stream_options is not None and not body.stream:
        raise Refused(400, "stream_options is only allowed when stream is true", param="stream_options")


def _penalty(name: str, asked: float | None) -> float:
    penalty = asked or 0.0
    _check(name, penalty, -MAX_PENALTY, MAX_PENALTY)
    return penalty


def _repetition_penalty(asked: float | None) -> float:
    penalty = 1.0 if asked is None else asked
    if penalty <= 0:
        raise Refused(400, f"repetition_penalty must be above 0, got {penalty:g}", param="repetition_penalty")
    return penalty


def _stop_strings(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    strings = () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)
    if len(strings) > MAX_STOP_STRINGS:
        raise Refused(400, f"stop: at most {MAX_STOP_STRINGS} strings, not {len(strings)}", param="stop")
    if not all(0 < len(string) <= MAX_STOP_LEN for string in strings):
        raise Refused(400, f"stop: a string has 1 to {MAX_STOP_LEN} characters", param="stop")
    return tuple(dict.fromkeys(strings))


def _stop_token_ids(token_ids: Sequence[int] | None) -> tuple[int, ...]:
    found = tuple(dict.fromkeys(token_ids or ()))
    if len(found) > MAX_STOP_STRINGS:
        raise Refused(400, f"stop_token_ids: at most {MAX_STOP_STRINGS}, not {len(found)}", param="stop_token_ids")
    for token_id in found:
        _check("stop_token_ids", token_id, 0, _MAX_TOKENS)
    return found


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        shown = (
            value if abs(value) < 1e15 else f"{value:.3g}" if isinstance(value, float) else "a number of that size"
        )
        raise Refused(400, f"{name} must be between {low} and {high}, got {shown}", param=name)
