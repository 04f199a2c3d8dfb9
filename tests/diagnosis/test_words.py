"""Remedies in the engine's own flags."""

import re
from typing import get_args

import pytest
from diagnosis_runs import cases, clean
from faulty_runs import below_break_even, decode_far_above_floor

from deepdraft.diagnosis.explain import findings_of
from deepdraft.diagnosis.words import Topic, capital, words

ENGINES = ("sglang", "vllm", "llamacpp", "deepdraft")
TOPICS = get_args(Topic)


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("engine", [*ENGINES, "imp"])
def test_every_engine_has_a_word_for_every_topic(engine, topic):
    assert words(engine, topic)


@pytest.mark.parametrize("topic", TOPICS)
def test_an_unknown_engine_is_told_in_general_words(topic):
    assert words("imp", topic) == words("openai", topic)
    assert "--" not in words("imp", topic)


@pytest.mark.parametrize(
    ("engine", "flag"),
    [
        ("sglang", "--speculative-algorithm"),
        ("vllm", "--speculative-config"),
        ("llamacpp", "--spec-type none"),
        ("imp", "start the server without its drafter"),
    ],
)
def test_findings_speak_the_servers_own_language(engine, flag):
    (slow, plain), _ = below_break_even()
    case = cases(_of(slow, engine), _of(plain, engine))[0]
    (finding,) = [each for each in findings_of(case) if each.code == "D211"]
    assert flag in finding.remedy


@pytest.mark.parametrize("engine", ENGINES)
def test_no_flag_of_another_engine_is_named(engine):
    runs, facts = decode_far_above_floor()
    case = cases(_of(runs[0], engine), facts=facts)[0]
    text = " ".join(
        [finding.remedy for finding in findings_of(case)]
        + [hypothesis.experiment for finding in findings_of(case) for hypothesis in finding.hypotheses]
    )
    own = set(re.findall(r"--[a-z][a-z-]+", " ".join(words(engine, topic) for topic in TOPICS)))
    assert set(re.findall(r"--[a-z][a-z-]+", text)) <= own | {"--text", "--limits", "--model", "--device", "--tp"}


def _of(run, engine):
    from dataclasses import replace

    return replace(run, header=replace(run.header, capabilities=replace(run.header.capabilities, engine=engine)))


def test_a_sentence_may_begin_with_a_flag():
    assert capital("raise --mem") == "Raise --mem"
    assert capital("--page-size 16") == "--page-size 16"
    assert capital("") == ""
    assert cases(clean())[0].say("page_size") == "--page-size 16"
