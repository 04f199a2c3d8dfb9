"""`deepdraft bench`: a table and a file that show and compare read; refusals before anything runs; Ctrl-C."""

from __future__ import annotations

import json
import signal

import pytest

from deepdraft.records.component_file import read_component_run

COMPONENTS = ("kernels", "moe", "tree", "round", "client")
TREE = ("bench", "tree", "--size", "embedded", "--budget", "8", "--repeats", "2", "--cell-s", "0.001")


@pytest.mark.parametrize("component", COMPONENTS)
def test_help_has_an_example_that_can_be_parsed(called, component) -> None:
    from deepdraft.cli.main import parser

    ran = called("bench", component, "--help")
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) <= 80
    example = " ".join(ran.out.split()).partition("Example: deepdraft ")[2]
    namespace = parser().parse_args(example.split())
    assert (namespace.component, namespace.command) == (component, "bench")


def test_a_run_is_printed_kept_and_read_again(called, tmp_path) -> None:
    path = tmp_path / "tree.jsonl"
    ran = called(*TREE, "--out", path)
    assert ran.code == 0, ran.err
    assert "7 x 4096, budget 8, whole" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80
    run = read_component_run(path)
    assert run.is_complete
    assert [case.name.rpartition(", ")[2] for case in run.cases] == ["whole", "build"]
    assert run.header.component == "tree"
    assert run.header.settings["budgets"] == [8]
    assert run.header.environment["num_threads"] >= 1
    assert run.header.command_line[:3] == ("deepdraft", "bench", "tree")
    assert called("show", path).out == ran.out
    shown = called("show", path, "--json").json
    assert [case["name"] for case in shown["cases"]] == [case.name for case in run.cases]
    assert called("show", path, "--csv").out.startswith("component,case,seconds,")


def test_json_is_the_only_thing_on_standard_output(called) -> None:
    ran = called(*TREE, "--json", "--quiet")
    assert ran.code == 0
    assert json.loads(ran.out)["component"] == "tree"
    assert ran.err == ""


def test_two_runs_are_compared_case_by_case(called, tmp_path) -> None:
    paths = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for path in paths:
        assert called(*TREE, "--out", path).code == 0
    ran = called("compare", *paths)
    assert ran.code == 0, ran.err
    assert "A: a.jsonl (bench tree)" in ran.out
    assert ran.out.count("7 x 4096, budget 8") == 2
    found = called("compare", *paths, "--json").json
    assert [case["name"] for case in found["comparisons"][0]["cases"]] == [
        "7 x 4096, budget 8, whole",
        "7 x 4096, budget 8, build",
    ]


@pytest.fixture
def component_file(called, tmp_path):
    path = tmp_path / "tree.jsonl"
    assert called(*TREE, "--out", path).code == 0
    return path


def test_a_component_goes_with_no_sweep_and_no_gate(called, component_file, tmp_path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_bytes(b'{"kind":"header","schema_version":2}\n')
    ran = called("compare", component_file, other)
    assert (ran.code, ran.said[0]) == (2, "other.jsonl is no component's results, the other files are")
    ran = called("compare", component_file, component_file, "--gate", "tpot=5%")
    assert (ran.code, ran.said[0]) == (2, "--gate is for sweeps")
    ran = called("explain", component_file)
    assert ran.code == 5
    assert "holds a component's results" in ran.said[0]


def test_a_file_that_is_there_is_not_written_over(called, component_file) -> None:
    before = component_file.read_bytes()
    ran = called(*TREE, "--out", component_file)
    assert ran.code == 5
    assert "exists already" in ran.said[0]
    assert component_file.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bench",), "the following arguments are required: NAME"),
        (("bench", "kernels", "--rows", "x"), "argument --rows: not a whole number of 1 or more: 'x'"),
        (("bench", "kernels", "--rows", "7"), "7 rows aren't whole nodes of 4 heads"),
        (("bench", "kernels", "--backend", "triton"), "the triton attention back end runs on a GPU, not on cpu"),
        (("bench", "tree", "--cell-s", "0"), "argument --cell-s: not a number of seconds above 0: '0'"),
        (("bench", "round", "--decode-len", "1"), "a turn of 1 tokens has no round"),
        (("bench", "round", "--context-len", "9M"), "9000064 tokens: the model is made for 262144"),
    ],
)
def test_what_can_not_be_measured_is_refused_and_leaves_no_file(called, tmp_path, words, message) -> None:
    out = ("--out", tmp_path / "none.jsonl") if len(words) > 1 else ()
    ran = called(*words, *out)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.said[0].endswith(message)
    assert not (tmp_path / "none.jsonl").exists()


def test_without_torch_it_says_what_to_install(called, monkeypatch) -> None:
    import importlib.util

    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        "deepdraft.cli.bench_prepare.importlib.util.find_spec",
        lambda name: None if name == "torch" else find_spec(name),
    )
    ran = called(*TREE)
    assert (ran.code, ran.said[0]) == (2, "bench tree needs torch")
    assert 'pip install "deepdraft[serve]"' in ran.said[1]


def test_ctrl_c_keeps_what_was_measured(start, tmp_path) -> None:
    path = tmp_path / "tree.jsonl"
    words = (
        "bench",
        "tree",
        "--size",
        "embedded",
        "--budget",
        "8,9,10,11,12,13",
        "--repeats",
        "8",
        "--cell-s",
        "0.02",
    )
    bench = start(*words, "--out", "tree.jsonl")
    bench.wait_until(lambda: path.exists() and path.read_bytes().count(b'"component_case"') >= 1)
    bench.signal(signal.SIGINT)
    ran = bench.end()
    assert ran.code == 130
    run = read_component_run(path)
    assert run.ends[-1].outcome == "interrupted"
    assert 1 <= len(run.cases) < 12
    assert "budget 8, whole" in ran.out
    assert "not complete: interrupted" in ran.out
    assert ran.said[0].endswith("tree.jsonl has what was measured")
