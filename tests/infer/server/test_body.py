"""Bodies: whatever comes is taken or refused, never anything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.infer.server.body import decoded
from deepdraft.infer.server.protocol import ChatBody, CompletionBody
from deepdraft.infer.server.refusal import Refused
from deepdraft.infer.server.sampling import sampling_params
from deepdraft.infer.server.unsupported import check_unsupported

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    [*CompletionBody.__struct_fields__, *ChatBody.__struct_fields__, "logit_bias", "min_p", "grammar", "x"]
)


def taken_or_refused(body: bytes) -> None:
    for kind in (CompletionBody, ChatBody):
        try:
            found = decoded(body, kind)
            check_unsupported(body)
            params = sampling_params(
                found, asked_max_tokens=found.max_tokens, max_tokens_name="max_tokens", num_logprobs=None
            )
        except Refused as refused:
            assert refused.status == 400
            assert refused.message
            json.dumps(refused.content)
        else:
            assert 0 < params.top_p <= 1
            assert 0 <= params.temperature <= 2
            assert -2 <= params.presence_penalty <= 2
            assert -2 <= params.frequency_penalty <= 2
            assert params.repetition_penalty > 0


@given(st.binary(max_size=60))
def test_any_bytes(body: bytes) -> None:
    taken_or_refused(body)


@given(st.dictionaries(FIELDS, JSON, max_size=5))
def test_any_values_in_known_fields(fields: dict[str, Any]) -> None:
    taken_or_refused(json.dumps({"prompt": "a", "messages": [{"role": "user"}], **fields}).encode())


@given(st.binary(min_size=1, max_size=3), st.integers(min_value=0), st.booleans())
def test_a_good_body_with_some_bytes_changed(change: bytes, place: int, is_inserted: bool) -> None:
    body = b'{"prompt": "text", "max_tokens": 5, "stop": ["a", "b"], "stream_options": {"include_usage": true}}'
    place %= len(body)
    taken_or_refused(body[:place] + change + body[place if is_inserted else place + len(change) :])


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (b'{"prompt": "a", "max_tokens": "5"}', "max_tokens", "max_tokens: Expected `int | null`, got `str`"),
        (b"{}", "prompt", "prompt is required"),
        (b'{"prompt": "a", "stream_options": {"include_usage": 1}}', "stream_options.include_usage", "bool"),
        (b"[]", None, "the body: Expected `object`, got `array`"),
        (b'{"prompt": "a"', None, "the body is not valid JSON"),
        (b'{"prompt": "\xff"}', None, "the body is not valid UTF-8: byte 12"),
        (b'{"prompt": "a", "x": ' + b"[" * 10_000, None, "the body is nested too deeply"),
    ],
)
def test_a_refusal_says_where(body: bytes, param: str | None, words: str) -> None:
    with pytest.raises(Refused) as refused:
        decoded(body, CompletionBody)
    assert refused.value.param == param
    assert words in refused.value.message
