"""POST /v1/completions: raw text or token ids, one prompt or several."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp

from deepdraft.infer.request import Output, TokenLogprob
from deepdraft.infer.server.access import request_id
from deepdraft.infer.server.answering import Answering
from deepdraft.infer.server.body import decoded, read_body
from deepdraft.infer.server.job import Choice, Job, Json
from deepdraft.infer.server.logprobs import completion_logprobs
from deepdraft.infer.server.prompt import completion_prompts, split_prompt
from deepdraft.infer.server.protocol import CompletionBody, StreamOptions
from deepdraft.infer.server.refusal import Refused
from deepdraft.infer.server.sampling import (
    DEFAULT_COMPLETION_TOKENS,
    check_stream_options,
    num_choices,
    sampling_params,
)
from deepdraft.infer.server.service import Service
from deepdraft.infer.server.unsupported import check_unsupported
from deepdraft.infer.tokenizer.tokenizer import Tokenizer


async def complete(service: Service, request: Request) -> ASGIApp:
    """The route. Raises Refused."""
    content = await read_body(request, service.max_body_bytes)
    body = decoded(content, CompletionBody)
    check_unsupported(content)
    service.check_model(body.model)
    check_stream_options(body)
    if body.echo and body.logprobs is not None:
        raise Refused(400, "logprobs of the prompt (echo) are not supported", param="echo")
    prompts = split_prompt(body)
    options = body.stream_options or StreamOptions()
    job = Job(
        form=CompletionForm(service.tokenizer),
        num_prompts=len(prompts),
        num_choices=num_choices(body),
        prompts=lambda: completion_prompts(prompts, body, service.tokenizer),
        sampling=sampling_params(
            body, asked_max_tokens=body.max_tokens, max_tokens_name="max_tokens", num_logprobs=body.logprobs
        ),
        default_max_tokens=DEFAULT_COMPLETION_TOKENS,
        is_stream=bool(body.stream),
        wants_usage=bool(options.include_usage),
        wants_continuous_usage=bool(options.continuous_usage_stats),
        wants_token_ids=bool(body.return_token_ids),
    )
    return Answering(service, job, request_id(request.scope))


class CompletionForm:
    """OpenAI's text_completion."""

    id_prefix = "cmpl-"
    prompt_field = "prompt"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def object_name(self, *, is_stream: bool) -> str:
        """The same for streams."""
        return "text_completion"

    def opening(self, choice: Choice) -> Json | None:
        """The prompt, where it is to be repeated."""
        return _shaped(choice, choice.prompt.echo, None) if choice.prompt.echo else None

    def piece(self, choice: Choice, output: Output) -> Json:
        """The new text."""
        return _shaped(choice, output.text, self._logprobs(choice, output.logprobs))

    def closing(self, choice: Choice) -> Json:
        """No text, and why it ended."""
        return {**_shaped(choice, "", None), "finish_reason": choice.finish_reason}

    def whole(self, choice: Choice) -> Json:
        """All text."""
        text = choice.prompt.echo + "".join(choice.texts)
        shaped = _shaped(choice, text, self._logprobs(choice, choice.logprobs))
        return {**shaped, "finish_reason": choice.finish_reason}

    def _logprobs(self, choice: Choice, logprobs: list[TokenLogprob] | tuple[TokenLogprob, ...]) -> Json | None:
        if not logprobs:
            return None
        shaped = completion_logprobs(logprobs, self._tokenizer, offset=choice.logprob_offset)
        choice.logprob_offset += sum(map(len, shaped["tokens"]))
        return shaped


def _shaped(choice: Choice, text: str, logprobs: Json | None) -> Json:
    return {"index": choice.index, "text": text, "logprobs": logprobs, "finish_reason": None}
