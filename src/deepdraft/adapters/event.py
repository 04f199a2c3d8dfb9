"""What one event of a stream says, whichever engine sent it: generated text by channel, counts, figures, errors.

One function reads every dialect we know: chat and completions chunks (vLLM, SGLang, llama.cpp, TensorRT-LLM,
LMDeploy, TGI, Ollama, transformers serve), SGLang's native /generate (cumulative text) and llama.cpp's native
/completion. It looks at one event alone: what needs the events before it (cumulative text, token counts by
difference, the verdict on the whole stream) is in `reading`. Field names: docs/reference/servers.md.

Called once for every token of every stream, so it works on plain dicts and makes one small object.
"""

from __future__ import annotations

from typing import Any

import msgspec

from deepdraft.adapters.json_text import decoded
from deepdraft.records import trace

FAILED_FINISHES = frozenset({"abort", "aborted", "error", "cancelled", "canceled"})
"""Finish reasons that mean the server gave up on the request."""

_FIGURE_KEYS = ("timings", "metrics", "sglext", "prompt_progress")


class EventFacts(msgspec.Struct):
    """One event, interpreted. Counts are None where the event does not state them."""

    kind: str
    """One of the letters of `records.trace`."""
    answer: str = ""
    reasoning: str = ""
    tool_call: str = ""
    """Names and arguments of tool calls, joined."""
    is_cumulative: bool = False
    """`answer` holds the whole text so far rather than this event's part."""
    usage_tokens: int | None = None
    """usage.completion_tokens (cumulative)."""
    meta_tokens: int | None = None
    """meta_info.completion_tokens or tokens_predicted of a native route (cumulative)."""
    num_token_ids: int | None = None
    """Token ids in this event (those of the whole answer when `is_cumulative`)."""
    num_logprobs: int | None = None
    """Log probabilities in this event, one for each token."""
    timings_tokens: int | None = None
    """timings.predicted_n (cumulative)."""
    finish_reason: str | None = None
    finish_message: str | None = None
    """What the server adds to a finish reason that is a failure."""
    usage: dict[str, Any] | None = None
    error: Any = None
    """The error as the server sent it, when kind is ERROR."""
    figures: dict[str, Any] | None = None
    """The engine's own figures, verbatim: timings, metrics, sglext, meta_info, prompt_progress, usage.speculation
    (as "speculation") ..."""

    @property
    def text(self) -> str:
        """All generated characters of the event, whatever the channel."""
        return self.reasoning + self.answer + self.tool_call


def event_facts(data: bytes, event_type: str | None = None) -> EventFacts:
    """Interpret the data of one event. `event_type` is the SSE event field, None when absent. Never raises."""
    if data.strip() == b"[DONE]":
        return EventFacts(trace.DONE)
    try:
        payload = decoded(data)
    except ValueError:
        if event_type == "error":
            return EventFacts(trace.ERROR, error=data.decode("utf-8", "replace"))
        return EventFacts(trace.OTHER)
    if type(payload) is not dict:
        return EventFacts(trace.ERROR, error=payload) if event_type == "error" else EventFacts(trace.OTHER)
    error = payload.get("error")
    if error or payload.get("object") == "error" or event_type == "error":
        return EventFacts(trace.ERROR, error=error or payload)
    choices = payload.get("choices")
    if choices and type(choices) is list:
        facts = _of_choices(choices)
    elif "meta_info" in payload:
        facts = _of_sglang_native(payload)
    elif "stop" in payload and "content" in payload:
        facts = _of_llamacpp_native(payload)
    else:
        facts = EventFacts(trace.OTHER)
    _add_figures(facts, payload)
    return facts


def _add_figures(facts: EventFacts, payload: dict[str, Any]) -> None:
    usage = payload.get("usage")
    if usage is None and "x_groq" in payload:
        nested = payload["x_groq"]
        usage = nested.get("usage") if type(nested) is dict else None
    if type(usage) is dict:
        facts.usage = usage
        facts.usage_tokens = _count(usage.get("completion_tokens"))
        if facts.kind == trace.OTHER:
            facts.kind = trace.USAGE
        speculation = usage.get("speculation")
        if type(speculation) is dict:
            facts.figures = {**(facts.figures or {}), "speculation": speculation}
    for key in _FIGURE_KEYS:
        figure = payload.get(key)
        if figure is None:
            continue
        if facts.figures is None:
            facts.figures = {}
        facts.figures[key] = figure
        if key == "timings" and type(figure) is dict:
            facts.timings_tokens = _count(figure.get("predicted_n"))
        if key == "prompt_progress" and facts.kind in (trace.EMPTY, trace.OTHER):
            facts.kind = trace.PROGRESS
        elif facts.kind == trace.OTHER:
            facts.kind = trace.USAGE


def _of_choices(choices: list[Any]) -> EventFacts:
    answer = reasoning = tool_call = ""
    facts = EventFacts(trace.EMPTY)
    for choice in choices:
        if type(choice) is not dict:
            continue
        delta = choice.get("delta")
        if delta is None:
            delta = choice.get("message")
        if type(delta) is dict:
            content = delta.get("content")
            if content:
                if type(content) is str:
                    answer += content
                else:
                    part_answer, part_reasoning = _of_parts(content)
                    answer += part_answer
                    reasoning += part_reasoning
            # Some servers send the same text under both keys while they rename one: it counts once.
            thought = delta.get("reasoning_content") or delta.get("reasoning")
            if type(thought) is str:
                reasoning += thought
            refusal = delta.get("refusal")
            if type(refusal) is str:
                answer += refusal
            calls = delta.get("tool_calls")
            if calls:
                tool_call += _of_calls(calls)
            call = delta.get("function_call")
            if call:
                tool_call += _of_function(call)
        else:
            text = choice.get("text")
            if type(text) is str:
                answer += text
        finish = choice.get("finish_reason")
        if finish:
            facts.finish_reason, facts.finish_message = _finish(finish)
        ids = choice.get("token_ids")
        if type(ids) is list:
            facts.num_token_ids = (facts.num_token_ids or 0) + len(ids)
        logprobs = choice.get("logprobs")
        if type(logprobs) is dict:
            listed = logprobs.get("content") or logprobs.get("tokens")
            if type(listed) is list:
                facts.num_logprobs = (facts.num_logprobs or 0) + len(listed)
        per_iter = choice.get("avg_decoded_tokens_per_iter")
        if per_iter is not None:
            facts.figures = {"avg_decoded_tokens_per_iter": per_iter}
    facts.answer, facts.reasoning, facts.tool_call = answer, reasoning, tool_call
    if answer:
        facts.kind = trace.TEXT
    elif tool_call:
        facts.kind = trace.TOOL_CALL
    elif reasoning:
        facts.kind = trace.REASONING
    elif facts.finish_reason:
        facts.kind = trace.FINISH
    return facts


def _of_sglang_native(payload: dict[str, Any]) -> EventFacts:
    """SGLang /generate. Text and ids are cumulative unless the server runs with --incremental-streaming-output;
    then the ids of one event are fewer than meta_info.completion_tokens, which is always cumulative."""
    meta = payload["meta_info"] if type(payload["meta_info"]) is dict else {}
    text = payload.get("text")
    ids = payload.get("output_ids")
    facts = EventFacts(trace.EMPTY, figures={"meta_info": meta})
    facts.meta_tokens = _count(meta.get("completion_tokens"))
    if type(ids) is list:
        facts.num_token_ids = len(ids)
    facts.is_cumulative = facts.num_token_ids is None or facts.num_token_ids == facts.meta_tokens
    if type(text) is str and text:
        facts.answer = text
        facts.kind = trace.TEXT
    finish = meta.get("finish_reason")
    if finish:
        facts.finish_reason, facts.finish_message = _finish(finish)
        if facts.kind == trace.EMPTY:
            facts.kind = trace.FINISH
    prompt_tokens = meta.get("prompt_tokens")
    if prompt_tokens is not None:
        facts.usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": meta.get("completion_tokens"),
            "prompt_tokens_details": {"cached_tokens": meta.get("cached_tokens")},
            "reasoning_tokens": meta.get("reasoning_tokens"),
        }
    return facts


_LLAMACPP_STOPS = {"limit": "length", "eos": "stop", "word": "stop"}


def _of_llamacpp_native(payload: dict[str, Any]) -> EventFacts:
    """llama.cpp /completion. `tokens_cached` is what the slot holds afterwards, not what was reused: left out."""
    content = payload["content"]
    facts = EventFacts(trace.EMPTY)
    if type(content) is str and content:
        facts.answer = content
        facts.kind = trace.TEXT
    facts.meta_tokens = _count(payload.get("tokens_predicted"))
    ids = payload.get("tokens")
    if type(ids) is list and ids:
        facts.num_token_ids = len(ids)
    if payload["stop"]:
        stop_type = payload.get("stop_type")
        facts.finish_reason = _LLAMACPP_STOPS.get(stop_type, "stop") if type(stop_type) is str else "stop"
        facts.usage = {
            "prompt_tokens": payload.get("tokens_evaluated"),
            "completion_tokens": payload.get("tokens_predicted"),
        }
        if facts.kind == trace.EMPTY:
            facts.kind = trace.FINISH
    return facts


def _of_parts(content: Any) -> tuple[str, str]:
    """Answer and reasoning in a content that is a list of typed parts."""
    if type(content) is not list:
        return "", ""
    answer = reasoning = ""
    for part in content:
        if type(part) is not dict:
            continue
        text = part.get("text")
        if type(text) is str:
            answer += text
        thinking = part.get("thinking")
        if type(thinking) is str:
            reasoning += thinking
        elif type(thinking) is list:
            reasoning += _of_parts(thinking)[0]
    return answer, reasoning


def _of_calls(calls: Any) -> str:
    if type(calls) is not list:
        return ""
    return "".join(_of_function(call.get("function")) for call in calls if type(call) is dict)


def _of_function(function: Any) -> str:
    if type(function) is not dict:
        return ""
    name, arguments = function.get("name"), function.get("arguments")
    return (name if type(name) is str else "") + (arguments if type(arguments) is str else "")


def _finish(finish: Any) -> tuple[str | None, str | None]:
    """A finish reason as a string, or as SGLang's object {"type", "message", "status_code", "err_type"}."""
    if type(finish) is str:
        return finish, None
    if type(finish) is dict:
        reason, message = finish.get("type"), finish.get("message")
        return (reason if type(reason) is str else "stop"), (message if type(message) is str else None)
    return None, None


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
