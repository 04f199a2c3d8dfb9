"""What a plain OpenAI-compatible server sends: the events of a stream, and an answer that is none.

Which event comes when is the stream's business; here is only what each looks like. `usage` is put in where given.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepdraft.simulate.dialects.traits import Event, Traits
from deepdraft.simulate.engine import Generation, Token
from deepdraft.simulate.truth import TokenKind


class StreamEvents(Traits):
    """Usage in its own chunk, a finish chunk with an empty delta."""

    def usage(self, generation: Generation, num_tokens: int, *, is_final: bool = True) -> Event:
        """The usage object after `num_tokens` output tokens."""
        prompt_tokens = generation.prompt_len + self.confounds.usage_prompt_offset
        content: Event = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": num_tokens,
            "total_tokens": prompt_tokens + num_tokens,
        }
        if is_final and self.shows_cached_in_usage():
            content["prompt_tokens_details"] = {"cached_tokens": self.shown_cached(generation.cached_len)}
        num_reasoning = sum(1 for token in generation.output[:num_tokens] if token.kind == "reasoning")
        if is_final and num_reasoning:
            content["completion_tokens_details"] = {"reasoning_tokens": num_reasoning}
        return content

    def head(self, generation: Generation) -> Event:
        """The fields every event of a stream has."""
        is_chat = generation.ask.shape == "chat"
        return {
            "id": ("chatcmpl-" if is_chat else "cmpl-") + generation.truth.request_id,
            "object": "chat.completion.chunk" if is_chat else "text_completion",
            "created": int(generation.created_s),
            "model": self.surface.model,
        }

    def choice(self, generation: Generation, content: Event, finish_reason: str | None, is_token: bool) -> Event:
        """A choice around a delta (chat) or text (completions)."""
        return {"index": 0, **content, "logprobs": None, "finish_reason": finish_reason}

    def role_event(self, generation: Generation) -> Event:
        """The chunk that holds only the role."""
        return self._event(generation, {"delta": {"role": "assistant", "content": ""}})

    def empty_event(self, generation: Generation, content: str | None) -> Event:
        """A chunk without text: content null or ""."""
        if generation.ask.shape == "chat":
            return self._event(generation, {"delta": {"content": content}})
        return self._event(generation, {"text": content})

    def progress_event(self, generation: Generation, processed: int, elapsed_s: float) -> Event:
        """A chunk that tells how much of the prompt is done."""
        event = self.empty_event(generation, "")
        event["prompt_progress"] = {
            "total": generation.prompt_len,
            "cache": self.shown_cached(generation.cached_len),
            "processed": processed,
            "time_ms": int(elapsed_s * 1000),
        }
        return event

    def text_event(
        self,
        generation: Generation,
        tokens: Sequence[Token],
        num_sent: int,
        finish_reason: str | None,
    ) -> Event:
        """Tokens of one kind; `num_sent` is how many were sent before them."""
        text = "".join(token.text for token in tokens)
        if generation.ask.shape == "chat":
            is_first_tool = num_sent == 0 or generation.output[num_sent - 1].kind != "tool"
            content: Event = {"delta": self.delta(tokens[0].kind, text, is_first_tool)}
        else:
            content = {"text": text}
        event = self._event(generation, content, finish_reason, is_token=True)
        if generation.ask.wants_token_ids:
            choice = event["choices"][0]
            choice["token_ids"] = [token.token_id for token in tokens]
            if num_sent == 0:
                choice["prompt_token_ids"] = generation.ask.prompt_ids
        if generation.ask.wants_continuous_usage:
            event["usage"] = self.usage(generation, num_sent + len(tokens), is_final=False)
        return event

    def delta(self, kind: TokenKind, text: str, is_first_tool: bool) -> Event:
        """The delta of a chat chunk."""
        if kind == "reasoning":
            return {self.confounds.reasoning_key: text}
        if kind == "tool":
            call: Event = {"index": 0, "function": {"arguments": text}}
            if is_first_tool:
                call |= {"id": "call_0", "type": "function"}
                call["function"] = {"name": "answer", "arguments": text}
            return {"tool_calls": [call]}
        return {"content": text}

    def finish_event(self, generation: Generation, usage: Event | None) -> Event:
        """The chunk with the finish_reason and no text."""
        content: Event = {"delta": {}} if generation.ask.shape == "chat" else {"text": ""}
        event = self._event(generation, content, self.finish_reason(generation))
        if usage is not None:
            event["usage"] = usage
        return event

    def usage_event(self, generation: Generation, usage: Event) -> Event:
        """The chunk without choices."""
        return {**self.head(generation), "choices": [], "usage": usage}

    def before_usage_events(self, generation: Generation) -> list[Event]:
        """Chunks between the finish and the usage that the request asked for."""
        return []

    def finish_reason(self, generation: Generation) -> str:
        """As the response says it."""
        if generation.finish_reason == "stop" and generation.output[-1].kind == "tool":
            return "tool_calls"
        return generation.finish_reason

    def _event(
        self, generation: Generation, content: Event, finish_reason: str | None = None, *, is_token: bool = False
    ) -> Event:
        return {
            **self.head(generation),
            "choices": [self.choice(generation, content, finish_reason, is_token)],
        }

    # --- answers that are no streams

    def full_answer(self, generation: Generation, usage: Event | None) -> Event:
        """The whole answer at once."""
        by_kind: dict[TokenKind, str] = {"reasoning": "", "content": "", "tool": ""}
        for token in generation.output:
            by_kind[token.kind] += token.text
        if generation.ask.shape == "chat":
            message: Event = {"role": "assistant", "content": by_kind["content"] or None}
            if by_kind["reasoning"]:
                message[self.confounds.reasoning_key] = by_kind["reasoning"]
            if by_kind["tool"]:
                message["tool_calls"] = self.delta("tool", by_kind["tool"], True)["tool_calls"]
            content: Event = {"message": message}
        else:
            content = {"text": by_kind["content"]}
        event = self._event(generation, content, self.finish_reason(generation), is_token=True)
        if generation.ask.shape == "chat":
            event["object"] = "chat.completion"
        if usage is not None:
            event["usage"] = usage
        return event
