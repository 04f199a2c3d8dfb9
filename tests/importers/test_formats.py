"""Which format a file is in, and what happens to foreign, damaged and newer ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepdraft.cli.import_results import FORMAT_NAMES
from deepdraft.errors import ResultsError, UsageError
from deepdraft.importers import FORMATS, import_file, run_of
from deepdraft.importers.document import document_of, read_document
from deepdraft.metrics import points_of
from deepdraft.records import Run
from deepdraft.report import results_table

SAMPLES = Path(__file__).parents[1] / "samples"
EXAMPLE = Path(__file__).parents[2] / "examples" / "reference_deployment" / "table.toml"
FILES = {
    "sglang-bench-serving": ["sglang-0.5.23/bench_serving.jsonl"],
    "sglang-one-batch": ["sglang-0.5.23/bench_one_batch_server.jsonl"],
    "vllm-bench-serve": ["vllm-0.32.0/bench_serve_detailed.json", "vllm-0.32.0/bench_serve_summary.json"],
    "llama-bench": ["llama.cpp-2026-10/llama_bench.json", "llama.cpp-2026-10/llama_bench.jsonl"],
    "llama-benchy": ["llama-benchy-0.4.0/depth_concurrency.json"],
    "guidellm": ["guidellm-0.8.1/benchmarks.json"],
    "aiperf": [
        "aiperf-0.13.0/profile_export_aiperf.json",
        "aiperf-0.13.0/profile_export_aiperf.csv",
        "aiperf-0.13.0/profile_export.jsonl",
    ],
    "sglang-log": ["sglang-0.5.23/server_log_spec.txt", "sglang-0.5.23/server_start_log.txt"],
    "vllm-log": ["vllm-0.32.0/server_log.txt"],
    "llamacpp-log": ["llama.cpp-2026-10/server_log_spec.txt"],
    "table": [str(EXAMPLE)],
}
ALL = [(name, file) for name, files in FILES.items() for file in files]


def test_the_command_names_every_format() -> None:
    assert tuple(FORMATS) == FORMAT_NAMES
    assert set(FILES) == set(FORMATS)


@pytest.mark.parametrize(("name", "file"), ALL)
def test_each_sample_is_recognised_by_its_format_alone(name: str, file: str) -> None:
    document = read_document(SAMPLES / file)
    assert [known.name for known in FORMATS.values() if known.recognises(document)] == [name]


@pytest.mark.parametrize(("name", "file"), ALL)
def test_what_is_imported_can_be_written_read_and_shown(name: str, file: str) -> None:
    run = import_file(SAMPLES / file)
    for line in (run.header, *run.reported, *run.notes):
        assert msgspec.json.decode(msgspec.json.encode(line), type=type(line)) == line
    assert run.header.source is not None
    assert run.header.source.sha256
    assert run.header.source.path == Path(file).name
    assert run.header.source.unknowns
    assert "/" not in (run.header.capabilities.model or "")
    points = points_of(run)
    assert len(points) == len(run.reported)
    shown = results_table(run)
    assert all(len(line) <= 80 for line in shown.splitlines())


@pytest.mark.parametrize("other", [name for name in FILES if name != "guidellm"])
def test_a_wrong_name_is_refused_with_the_right_one(other: str) -> None:
    with pytest.raises(ResultsError, match="looks like a report of guidellm") as refused:
        import_file(SAMPLES / "guidellm-0.8.1/benchmarks.json", name=other)
    assert "guidellm" in (refused.value.hint or "")


def test_an_unknown_name_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="unknown format"):
        import_file(SAMPLES / "guidellm-0.8.1/benchmarks.json", name="excel")


@pytest.mark.parametrize(
    "content",
    ["hello", '{"a": 1}', "[1, 2]", "[]", "<html></html>", '{"benchmarks": []}', "Metric,Value\n", '{"duration": 1'],
)
def test_foreign_files_are_refused_in_one_line(from_text: Callable[[str], Run], content: str) -> None:
    with pytest.raises(ResultsError) as refused:
        from_text(content)
    assert "\n" not in refused.value.message


def test_our_own_file_is_not_imported_again(from_text: Callable[[str], Run]) -> None:
    with pytest.raises(ResultsError, match="Deepdraft results file already"):
        from_text('{"kind":"header","schema_version":2}')


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("guidellm-0.8.1/benchmarks.json", '"version": 2', '"version": 3'),
        ("aiperf-0.13.0/profile_export_aiperf.json", '"schema_version": "1.4"', '"schema_version": "2.0"'),
    ],
)
def test_a_newer_schema_is_named(from_text: Callable[[str], Run], file: str, old: str, new: str) -> None:
    content = (SAMPLES / file).read_text()
    assert old in content
    with pytest.raises(ResultsError, match="schema") as refused:
        from_text(content.replace(old, new))
    assert refused.value.hint == "upgrade deepdraft"


def test_a_cut_list_keeps_its_whole_tests_and_says_what_is_lost(from_text: Callable[[str], Run]) -> None:
    content = (SAMPLES / "llama.cpp-2026-10/llama_bench.json").read_text()
    run = from_text(content[: int(0.7 * len(content))])
    assert len(run.reported) == 3
    assert [note.topic for note in run.notes if "breaks off after 3 entries" in note.message] == ["loss"]


def test_a_damaged_line_costs_one_point(from_text: Callable[[str], Run]) -> None:
    lines = (SAMPLES / "llama.cpp-2026-10/llama_bench.jsonl").read_text().splitlines()
    lines[1] = lines[1][:50]
    run = from_text("\n".join(lines))
    assert len(run.reported) == len(lines) - 1
    assert any("line 2 can't be read" in note.message for note in run.notes if note.topic == "loss")


def test_a_cut_single_object_is_refused_in_one_line(from_text: Callable[[str], Run]) -> None:
    content = (SAMPLES / "vllm-0.32.0/bench_serve_summary.json").read_text()
    with pytest.raises(ResultsError, match="cut short or damaged"):
        from_text(content[: len(content) // 2])


def _mutated(value: Any, path: list[int], wrong: Any) -> Any:
    """The value with the entry at a path, taken by position, replaced."""
    if not path or not isinstance(value, dict | list) or not value:
        return wrong
    place = path[0] % len(value)
    if isinstance(value, dict):
        key = list(value)[place]
        return {**value, key: _mutated(value[key], path[1:], wrong)}
    return [*value[:place], _mutated(value[place], path[1:], wrong), *value[place + 1 :]]


@pytest.mark.parametrize(("name", "file"), [pair for pair in ALL if pair[1].endswith((".json", ".jsonl"))])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    path=st.lists(st.integers(0, 400), min_size=1, max_size=6),
    wrong=st.sampled_from([None, "text", -1, 0, [], {}, True, [None], 1e308, {"a": 1}]),
)
def test_a_wrong_value_anywhere_costs_a_point_and_never_the_program(
    name: str, file: str, path: list[int], wrong: Any
) -> None:
    objects = _mutated(list(read_document(SAMPLES / file).objects), path, wrong)
    lines = [json.dumps(one) for one in objects] if isinstance(objects, list) else []
    try:
        imported = FORMATS[name].read(document_of("results.json", "\n".join(lines).encode()))
        run = run_of(imported, path="results.json", sha256="0" * 64)
        points_of(run)
        results_table(run)
    except ResultsError as refused:
        assert "\n" not in refused.message
        return
    for line in run.reported:
        assert msgspec.json.decode(msgspec.json.encode(line), type=type(line)) == line


@pytest.mark.parametrize(("name", "file"), [pair for pair in ALL if not pair[1].endswith((".json", ".jsonl"))])
@settings(max_examples=60, deadline=None)
@given(share=st.floats(0, 1), seed=st.randoms(use_true_random=False))
def test_torn_and_shuffled_text_never_ends_the_program(name: str, file: str, share: float, seed: Random) -> None:
    text = read_document(SAMPLES / file).text
    lines = text[: int(share * len(text))].splitlines()
    lines += [line[: seed.randrange(len(line) + 1)] for line in seed.sample(lines, min(5, len(lines)))]
    if seed.random() < 0.5:
        seed.shuffle(lines)
    try:
        imported = FORMATS[name].read(document_of("server.log", "\n".join(lines).encode()))
    except ResultsError:
        assert name == "table"
        return
    points_of(run_of(imported, path="server.log", sha256="0" * 64))
