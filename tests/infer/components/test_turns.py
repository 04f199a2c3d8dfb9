"""Everything takes turns, forwards and backwards; a stop keeps the repeats that are whole."""

from __future__ import annotations

from collections.abc import Callable

from deepdraft.infer.components.turns import Candidate, Timing, Watch, cases_of, measured


def candidate(said: list[str], name: str = "a case") -> Candidate:
    def saying(word: str) -> Callable[[], None]:
        return lambda: said.append(word)

    def rate() -> float:
        said.append("rate")
        return 2.0

    return Candidate(
        name=name,
        facts={"num_rows": 1},
        run=saying("own"),
        peers={"torch": saying("torch")},
        work={"copy": 1.0},
        rates={"copy": rate},
        note="a note",
    )


def without_repetition(words: list[str]) -> list[str]:
    return [word for index, word in enumerate(words) if index == 0 or word != words[index - 1]]


def test_sides_take_turns_there_and_back(brief: Timing) -> None:
    said: list[str] = []
    case = measured(candidate(said), brief, Watch())
    assert case is not None
    assert without_repetition(said) == ["own", "torch", "rate", "own", "torch", "own", "rate"]
    assert [set(repeat.peers_s) for repeat in case.repeats] == [{"torch"}] * 2
    assert [repeat.rates for repeat in case.repeats] == [{"copy": 2.0}] * 2
    assert all(repeat.seconds > 0 for repeat in case.repeats)
    assert (case.name, case.facts, case.work, case.note) == ("a case", {"num_rows": 1}, {"copy": 1.0}, "a note")


def test_a_stop_in_the_second_repeat_keeps_the_first(brief: Timing) -> None:
    said: list[str] = []
    watch = Watch(is_asked_to_stop=lambda: len(without_repetition(said)) >= 6)
    case = measured(candidate(said), brief, watch)
    assert case is not None
    assert len(case.repeats) == 1


def test_a_stop_in_the_first_repeat_leaves_no_case(brief: Timing) -> None:
    said: list[str] = []
    assert measured(candidate(said), brief, Watch(is_asked_to_stop=lambda: "rate" in said)) is None


def test_after_a_stop_no_further_candidate_is_made(brief: Timing) -> None:
    said: list[str] = []
    told: list[str] = []
    candidates = (candidate(said, name) for name in ("one", "two", "three"))
    watch = Watch(is_asked_to_stop=lambda: len(told) == 2, report=told.append)
    assert [case.name for case in cases_of(candidates, brief, watch)] == ["one"]
    assert told == ["one", "two"]
    assert next(candidates).name == "three"
