"""Prompts in tokens. A long text takes a good part of a second, so all of this runs in a thread of its own
(`TextWorker`), where the event loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from deepdraft.infer.server.protocol import ChatBody, CompletionBody, ContentPart, Message, TokenizeBody
from deepdraft.infer.server.refusal import Refused
from deepdraft.infer.tokenizer.tokenizer import Tokenizer

T = TypeVar("T")
_NUM_THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt."""

    token_ids: tuple[int, ...]
    echo: str = ""
    """What the answer begins with, when the request asked for it."""


class TextWorker:
    """Threads for work on long texts."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_NUM_THREADS, "text")

    async def run(self, work: Callable[[], T]) -> T:
        """Call `work` in a thread; what it raises is raised here."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def stop(self) -> None:
        """Take no more work."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def split_prompt(body: CompletionBody) -> list[str | list[int]]:
    """The prompts in `prompt`, which may be text, token ids, or a list of either. Raises Refused (400)."""
    prompt = body.prompt
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise Refused(400, "prompt is empty", param="prompt")
    if all(isinstance(entry, int) for entry in prompt):
        return [[entry for entry in prompt if isinstance(entry, int)]]
    if any(isinstance(entry, int) for entry in prompt):
        raise Refused(400, "prompt: token ids and other entries can't share one list", param="prompt")
    return [entry for entry in prompt if not isinstance(entry, int)]


def completion_prompts(
    prompts: Sequence[str | list[int]], body: CompletionBody, tokenizer: Tokenizer
) -> list[Prompt]:
    """Text encoded (with BOS where the model has one), token ids taken as they are."""
    adds_special = body.add_special_tokens is not False
    found = []
    for prompt in prompts:
        if isinstance(prompt, str):
            token_ids = tuple(tokenizer.encode(prompt, add_special=adds_special))
            found.append(Prompt(token_ids=token_ids, echo=prompt if body.echo else ""))
        else:
            echo = tokenizer.decode(prompt, skip_special=True) if body.echo else ""
            found.append(Prompt(token_ids=tuple(prompt), echo=echo))
    return found


def chat_prompt(body: ChatBody | TokenizeBody, tokenizer: Tokenizer) -> Prompt:
    """The messages through the model's chat template. Raises Refused; InvalidRequest with the template's words."""
    messages = [_template_message(message, place) for place, message in enumerate(body.messages or ())]
    if not messages:
        raise Refused(400, "messages is empty", param="messages")
    adds_prompt = body.add_generation_prompt is not False
    values = body.chat_template_kwargs or {}
    taken = values.keys() & {"messages", "tools", "add_generation_prompt"}
    if taken:
        raise Refused(400, f"chat_template_kwargs can't set {sorted(taken)[0]}", param="chat_template_kwargs")
    text = tokenizer.chat(messages, add_generation_prompt=adds_prompt, tools=body.tools or None, **values)
    return Prompt(token_ids=tuple(tokenizer.encode(text, add_special=body.add_special_tokens is True)))


def _template_message(message: Message, place: int) -> dict[str, Any]:
    """As templates expect it: content as one text, a tool call's arguments as an object."""
    found: dict[str, Any] = {"role": message.role, "content": _text(message.content, place)}
    for name in ("name", "reasoning_content", "tool_call_id"):
        if (value := getattr(message, name)) is not None:
            found[name] = value
    if message.tool_calls is not None:
        found["tool_calls"] = [_tool_call(call, place) for call in message.tool_calls]
    return found


def _text(content: str | list[ContentPart] | None, place: int) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for number, part in enumerate(content):
        if part.type != "text" or part.text is None:
            param = f"messages[{place}].content[{number}]"
            raise Refused(400, f"{param}: only parts of type text are taken, not {part.type!r}", param="messages")
    return "\n".join(part.text or "" for part in content)


def _tool_call(call: dict[str, Any], place: int) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = msgspec.json.decode(function["arguments"] or "{}")
    except msgspec.DecodeError:
        raise Refused(400, f"messages[{place}].tool_calls: arguments are not valid JSON", param="messages") from None
    return {**call, "function": {**function, "arguments": arguments}}
