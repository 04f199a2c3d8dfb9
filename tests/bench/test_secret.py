from __future__ import annotations

from dataclasses import replace

from deepdraft.bench.secret import Secrets
from deepdraft.records import Failure, Measurement, Note, PromptFacts, RequestTrace

RESULT = Measurement(
    trial_id="t",
    started_at_s=1.0,
    max_tokens=8,
    prompt=PromptFacts(asked_len=100),
    trace=RequestTrace(output_text="fine", server_fields={"a": [1, "b"]}),
)


def test_whole_values_and_their_words_are_hidden() -> None:
    secrets = Secrets({"authorization": "Bearer abcdef123"}, {"x-token": "0123456789"})
    assert secrets.hidden("bad key: Bearer abcdef123") == "bad key: <redacted>"
    assert secrets.hidden("bad key: abcdef123, token 0123456789!") == "bad key: <redacted>, token <redacted>!"


def test_short_values_are_no_secrets() -> None:
    secrets = Secrets({"x-version": "1", "accept": "json"})
    assert secrets.hidden("1 json 11") == "1 json 11"
    assert secrets.hidden_in(RESULT) is RESULT


def test_nothing_given_nothing_changed() -> None:
    assert Secrets({}).hidden_in(RESULT) is RESULT
    assert Secrets({"authorization": "Bearer abcdef123"}).hidden_in(RESULT) is RESULT


def test_records_are_searched_to_their_depths() -> None:
    value = 'quoted "pass\\word" ü'
    secrets = Secrets({"x-token": value})
    failed = replace(
        RESULT,
        failure=Failure(name="HttpStatus", message=f"no: {value}", http_status=401),
        trace=RequestTrace(output_text=value, server_fields={"deep": [{"er": f"<{value}>"}]}),
    )
    clean = secrets.hidden_in(failed)
    assert clean.failure is not None
    assert clean.failure.message == "no: <redacted>"
    assert clean.trace.output_text == "<redacted>"
    assert clean.trace.server_fields == {"deep": [{"er": "<<redacted>>"}]}
    assert clean.prompt == RESULT.prompt
    note = secrets.hidden_in(Note(at_s=1.0, topic="failure", message=value))
    assert (note.topic, note.message) == ("failure", "<redacted>")
