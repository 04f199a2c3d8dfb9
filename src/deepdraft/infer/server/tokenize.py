"""POST /tokenize and /detokenize, in vLLM's words (`prompt`, `messages`) and in llama.cpp's (`content`)."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from deepdraft.infer.server.body import decoded, read_body
from deepdraft.infer.server.prompt import chat_prompt
from deepdraft.infer.server.protocol import DetokenizeBody, TokenizeBody
from deepdraft.infer.server.refusal import Refused, json_response
from deepdraft.infer.server.service import Service


async def tokenize(service: Service, request: Request) -> Response:
    """Text or messages to token ids. Raises Refused; InvalidRequest with the chat template's words."""
    body = decoded(await read_body(request, service.max_body_bytes), TokenizeBody)
    service.check_model(body.model)
    token_ids = await service.texts.run(lambda: _token_ids(service, body))
    return json_response(
        {"count": len(token_ids), "max_model_len": service.facts.max_context_len, "tokens": token_ids}
    )


async def detokenize(service: Service, request: Request) -> Response:
    """Token ids to text. Raises Refused."""
    body = decoded(await read_body(request, service.max_body_bytes), DetokenizeBody)
    service.check_model(body.model)
    limit = service.facts.max_context_len
    if len(body.tokens) > limit:
        raise Refused(400, f"tokens: {len(body.tokens)} are more than the context limit of {limit}", param="tokens")
    for token_id in body.tokens:
        if not 0 <= token_id < service.facts.vocab_size:
            raise Refused(400, f"tokens: {token_id} is not in the vocabulary", param="tokens")
    text = await service.texts.run(lambda: service.tokenizer.decode(body.tokens, skip_special=False))
    return json_response({"prompt": text, "content": text})


def _token_ids(service: Service, body: TokenizeBody) -> list[int]:
    given = [name for name in ("prompt", "messages", "content") if getattr(body, name) is not None]
    if len(given) != 1:
        raise Refused(400, "give one of prompt, messages and content")
    if body.messages is not None:
        return list(chat_prompt(body, service.tokenizer).token_ids)
    if body.content is not None:
        return service.tokenizer.encode(body.content, add_special=bool(body.add_special))
    return service.tokenizer.encode(body.prompt or "", add_special=body.add_special_tokens is not False)
