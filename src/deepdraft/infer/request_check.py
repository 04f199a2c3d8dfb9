"""Refuse a request that can't be served, before anything is spent on it, by the parameter that made it so."""

from __future__ import annotations

import math

from deepdraft.infer.errors import ContextTooLong, InvalidRequest, PoolTooSmall
from deepdraft.infer.request import Request, SamplingParams
from deepdraft.infer.settings import EngineSettings

MAX_PENALTY = 2
"""Of presence_penalty and frequency_penalty, up or down: OpenAI's range."""


def check_request(request: Request, settings: EngineSettings, *, vocab_size: int) -> None:
    """Raises InvalidRequest, ContextTooLong or PoolTooSmall.

    The two limits are apart: the context limit is what the model (or its user) allows one request, the pool is what
    memory allows all of them. A request has to fit both alone, its last token included.
    """
    prompt = request.prompt_token_ids
    if not prompt:
        raise InvalidRequest("prompt", "the prompt has no tokens")
    if min(prompt) < 0 or max(prompt) >= vocab_size:
        stranger = next(token_id for token_id in prompt if not 0 <= token_id < vocab_size)
        raise InvalidRequest("prompt", f"token id {stranger} is not in the vocabulary of {vocab_size}")
    check_sampling(request.sampling, vocab_size=vocab_size)
    num_tokens = len(prompt) + request.sampling.max_tokens
    if num_tokens > settings.max_context_len:
        raise ContextTooLong(
            num_prompt_tokens=len(prompt),
            max_tokens=request.sampling.max_tokens,
            max_context_len=settings.max_context_len,
        )
    if num_tokens > settings.kv_pool_tokens:
        raise PoolTooSmall(
            num_tokens=num_tokens,
            kv_pool_tokens=settings.kv_pool_tokens,
            max_context_len=settings.max_context_len,
        )


def check_sampling(params: SamplingParams, *, vocab_size: int) -> None:
    """Raises InvalidRequest for a parameter without sense."""
    if params.max_tokens < 1:
        raise InvalidRequest("max_tokens", f"max_tokens must be 1 or more: {params.max_tokens}")
    if not 0 <= params.min_tokens <= params.max_tokens:
        raise InvalidRequest(
            "min_tokens", f"min_tokens must be between 0 and max_tokens, {params.max_tokens}: {params.min_tokens}"
        )
    if not (params.temperature >= 0 and math.isfinite(params.temperature)):
        raise InvalidRequest("temperature", f"temperature must be 0 or more: {params.temperature}")
    if not 0 <= params.top_p <= 1:
        raise InvalidRequest("top_p", f"top_p must be between 0 and 1: {params.top_p}")
    if params.top_k is not None and params.top_k < 1:
        raise InvalidRequest("top_k", f"top_k must be 1 or more: {params.top_k}")
    for name, penalty in (
        ("presence_penalty", params.presence_penalty),
        ("frequency_penalty", params.frequency_penalty),
    ):
        if not -MAX_PENALTY <= penalty <= MAX_PENALTY:
            raise InvalidRequest(name, f"{name} must be between -{MAX_PENALTY} and {MAX_PENALTY}: {penalty}")
    if not (params.repetition_penalty > 0 and math.isfinite(params.repetition_penalty)):
        raise InvalidRequest("repetition_penalty", f"repetition_penalty must be above 0: {params.repetition_penalty}")
    if params.num_logprobs is not None and params.num_logprobs < 0:
        raise InvalidRequest("logprobs", f"logprobs must be 0 or more: {params.num_logprobs}")
    if not all(params.stop):
        raise InvalidRequest("stop", "a stop string must not be empty")
    if any(not 0 <= token_id < vocab_size for token_id in params.stop_token_ids):
        raise InvalidRequest("stop_token_ids", f"stop_token_ids must be in the vocabulary of {vocab_size}")
