from __future__ import annotations

import datetime
from typing import Any

import pytest

from deepdraft.infer.errors import InvalidRequest
from deepdraft.infer.tokenizer.chat_template import ChatTemplate

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}

# Of the form that SmolLM2 and other ChatML models have.
CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Tools as JSON, reasoning cut from earlier turns, a switch of the caller's: of Qwen3's form.
QWEN3_LIKE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=messages|length - 1, searching=true) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and message.content is string %}
        {%- set ns.searching = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content if message.content is string else '' %}
        {%- set reasoning = message.reasoning_content if message.reasoning_content is string else '' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > ns.last and reasoning %}
            {{- '<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- content.lstrip('\\n') }}
        {%- for tool_call in message.tool_calls or [] %}
            {%- set call = tool_call.function or tool_call %}
            {{- '\\n<tool_call>\\n{"name": "' ~ call.name ~ '", "arguments": ' }}
            {{- call.arguments if call.arguments is string else call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""
# Content that may be missing, state in a namespace, full-width bars: of DeepSeek's form.
DEEPSEEK_LIKE = (
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
    "{% set ns = namespace(is_first=true, system_prompt='') %}"
    "{%- for message in messages %}{%- if message['role'] == 'system' %}"
    "{%- set ns.system_prompt = ns.system_prompt + message['content'] %}{%- endif %}{%- endfor %}"
    "{{ bos_token }}{{ ns.system_prompt }}"
    "{%- for message in messages %}"
    "{%- if message['role'] == 'user' %}{{'<｜User｜>' + message['content']}}"
    "{%- elif message['role'] == 'assistant' and 'tool_calls' in message %}"
    "{%- for tool in message['tool_calls'] %}"
    "{%- if ns.is_first %}{{'<｜Assistant｜><｜tool▁calls▁begin｜>'}}{%- set ns.is_first = false %}{%- endif %}"
    "{%- if message['content'] is none or message['content'] is not defined %}{{ '[none]' }}{%- endif %}"
    "{{ tool['type'] + '<｜tool▁sep｜>' + tool['function']['name'] + '\\n```json\\n'"
    " + tool['function']['arguments']|tojson + '\\n```<｜tool▁call▁end｜>' }}{%- endfor %}{{ eos_token }}"
    "{%- elif message['role'] == 'assistant' %}{{'<｜Assistant｜>' + message['content'] + eos_token}}"
    "{%- elif message['role'] == 'tool' %}{{'<｜tool▁output▁begin｜>' + message['content']}}"
    "{%- endif %}{%- endfor %}{% if add_generation_prompt %}{{'<｜Assistant｜>'}}{% endif %}"
)
BLOCKS = """\
  {% for message in messages %}
    {% if loop.index > 2 %}
      {% break %}
    {% endif %}
    {% if message.role == "skip" %}
      {% continue %}
    {% endif %}
    {% generation %}
      {% set inner = message.content %}
{{ inner | upper }} {{ {"a<b>&": "é'"} | tojson }} {{ [1, {"b": 2}] | tojson(indent=2) }}
    {% endgeneration %}
  {% endfor %}
{{ pad_token }}{{ documents }}{{ tools }}
"""
TEMPLATES = {"chatml": CHATML, "qwen3": QWEN3_LIKE, "deepseek": DEEPSEEK_LIKE, "blocks": BLOCKS}

CALL = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich <&>"}}}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}
CHATS: dict[str, list[dict[str, Any]]] = {
    "one": [{"role": "user", "content": "Hi <b> & 'you' {{ 1 }}"}],
    "system": [{"role": "system", "content": "Sys"}, {"role": "user", "content": "  Hi\n"}],
    "turns": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "early"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d", "reasoning": "late"},
    ],
    "tool calls": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "rain", "tool_call_id": "1"},
    ],
}


def ours(template: str, chat: list[dict[str, Any]], **values: Any) -> str:
    values = {"add_generation_prompt": True, "tools": None, **values}
    return ChatTemplate(template, SPECIAL).render(chat, **values)


def transformers_own(template: str, chat: list[dict[str, Any]], **values: Any) -> str:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    import tokenizers

    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **SPECIAL)
    values = {"add_generation_prompt": True, **values}
    rendered: str = tokenizer.apply_chat_template(chat, chat_template=template, tokenize=False, **values)
    return rendered


def both_or_neither(template: str, chat: list[dict[str, Any]], **values: Any) -> None:
    """The same text, or a refusal on both sides."""
    import jinja2

    try:
        expected = transformers_own(template, chat, **values)
    except (jinja2.TemplateError, TypeError):
        with pytest.raises(InvalidRequest):
            ours(template, chat, **values)
        return
    assert ours(template, chat, **values) == expected


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("template", TEMPLATES)
def test_text_is_transformers_own(template: str, chat: str) -> None:
    for values in ({}, {"add_generation_prompt": False}, {"tools": [TOOL]}, {"enable_thinking": False}):
        both_or_neither(TEMPLATES[template], CHATS[chat], **values)


def test_most_of_these_chats_are_rendered() -> None:
    # Keeps the test above from passing by refusals alone.
    rendered = [ours(TEMPLATES["qwen3"], chat) for chat in CHATS.values()]
    assert rendered[0] == "<|im_start|>user\nHi <b> & 'you' {{ 1 }}<|im_end|>\n<|im_start|>assistant\n"
    assert '"arguments": {"city": "Zürich <&>"}' in rendered[3]
    assert "<think>\nlate\n</think>" in rendered[2]
    assert "early" not in rendered[2]
    assert "[none]" in ours(DEEPSEEK_LIKE, CHATS["tool calls"])
    assert ours(BLOCKS, CHATS["turns"]).count('{"a<b>&": "é\'"}') == 2


def test_the_template_refuses_in_its_own_words() -> None:
    template = "{% if messages[0].role != 'user' %}{{ raise_exception('A chat begins with the user') }}{% endif %}"
    with pytest.raises(InvalidRequest, match="A chat begins with the user") as refused:
        ours(template, [{"role": "system", "content": "x"}])
    assert refused.value.parameter == "messages"


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[0].content + 1 }}",
        "{{ messages[0].nothing.at_all }}",
        "{{ 1 // 0 }}",
        "{{ messages['a':'b'] }}",
        "{{ [1, 2].append }}{{ messages.append(3) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ range(10 ** 9) | list }}",
        "{{ messages | tojson(indent=[]) }}",
        "{% for x in messages %}",
    ],
)
def test_a_template_that_fails_is_a_refused_request(template: str) -> None:
    with pytest.raises(InvalidRequest, match="chat template"):
        ours(template, [{"role": "user", "content": "text"}])


def test_messages_are_not_changed() -> None:
    chat = [{"role": "user", "content": "x", "name": None, "reasoning": "r"}]
    ours(CHATML, chat)
    assert chat == [{"role": "user", "content": "x", "name": None, "reasoning": "r"}]


def test_the_date_of_today() -> None:
    assert ours("{{ strftime_now('%Y') }}", []) in {str(datetime.date.today().year + later) for later in (0, 1)}


def test_the_callers_values_come_before_the_special_tokens() -> None:
    assert ours("{{ bos_token }}{{ date }}", [], bos_token="B", date="D") == "BD"
