"""A model's chat template: Jinja in a sandbox, with what templates are written against (transformers' environment).

Templates come with a model, so they get plain values only, and no way to write or to reach Python's inside. The
differences that matter are transformers' own: trimmed blocks, JSON without HTML escapes, `raise_exception`,
`strftime_now`, loop controls, and the `generation` block, which here renders what it holds.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from deepdraft.infer.errors import InvalidRequest

# What rendering a template can raise over messages that it was not written for (a list where it adds strings, ...).
_RENDER_ERRORS = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RecursionError,
)
# Names under which a message's reasoning is passed; templates read the first.
_REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")


class ChatTemplate:
    """One template; compiled when first used."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self._source = source
        self._special_tokens = dict(special_tokens)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] | None,
        **template_values: Any,
    ) -> str:
        """The conversation as text. Raises InvalidRequest, with the template's own words, where it refuses."""
        values: dict[str, Any] = {"documents": None, **self._special_tokens, **template_values}
        values["messages"] = [_message(message) for message in messages]
        values["tools"] = [dict(tool) for tool in tools] if tools is not None else None
        values["add_generation_prompt"] = add_generation_prompt
        try:
            return self._compiled.render(values)
        except _RENDER_ERRORS as error:
            raise InvalidRequest(
                "messages", f"the model's chat template can't take these messages: {_in_one_line(error)}"
            ) from error

    @cached_property
    def _compiled(self) -> jinja2.Template:
        return _environment().from_string(self._source)


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """What a template expects: a key that says None is one that isn't there; reasoning under every name in use."""
    stated = {key: value for key, value in message.items() if value is not None}
    reasoning = next((stated[field] for field in _REASONING_FIELDS if field in stated), None)
    if reasoning is None:
        return stated
    return {"thinking": reasoning, **stated, "reasoning_content": reasoning}


def _in_one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, jinja2.TemplateError) and text else f"{type(error).__name__}: {text}"


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class _GenerationBlock(jinja2.ext.Extension):
    """`{% generation %}` marks what the model wrote, for training; here it renders as if the marks weren't there."""

    tags = {"generation"}  # noqa: RUF012 - the name and kind that jinja2 declares

    def parse(self, parser: Parser) -> nodes.Node:
        """The block's body as a scope of its own, as a call block would have it."""
        line_number = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line_number)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
