"""`deepdraft train-drafter` as a command: what it refuses, what it leaves, and that its results are read."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deepdraft.cli.main import main
from deepdraft.records.file import read_run

Words = Callable[..., tuple[str, ...]]


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    """Enough text for prompts of a few hundred tokens."""
    file = tmp_path / "text.py"
    file.write_text(Path(json.__file__).read_text())
    return file


@pytest.fixture
def small(tiny_model: Path, text_file: Path, tmp_path: Path) -> Words:
    """The words of a job of a few seconds, and further ones."""

    def words(*further: object, out: str = "job") -> tuple[str, ...]:
        fixed = (
            "train-drafter", tiny_model, "--out", tmp_path / out, "--text", text_file, "--mask-token-id", 3,
            "--regenerate", 128, "--output-len", 16, "--sequence-len", 160, "--long-frac", 0, "--draft-window", 32,
            "--block-size", 4, "--num-layers", 1, "--num-threads", 1,
        )  # fmt: skip
        return tuple(map(str, (*fixed, *further)))

    return words


def _said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_job_leaves_a_drafter_and_results_that_are_read(
    small: Words, text_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluation = (
        "--eval-text",
        text_file,
        "--eval-context-lens",
        "64,200",
        "--eval-prompts",
        2,
        "--tree-budgets",
        "2,8",
    )
    assert main(small("--steps", 3, *evaluation)) == 0
    said = _said(capsys)
    assert any("training: 3 of 3 steps" in line for line in said)
    config = json.loads((tmp_path / "job" / "drafter" / "config.json").read_text())
    assert (config["block_size"], config["num_hidden_layers"]) == (4, 1)

    results = tmp_path / "job" / "acceptance"
    assert sorted(file.name for file in results.iterdir()) == ["chain.jsonl", "tree_2.jsonl", "tree_8.jsonl"]
    for file in results.iterdir():
        run = read_run(file)
        assert [line.context_len for line in run.reported] == [64, 200]
        for line in run.reported:
            found = line.acceptance
            assert found is not None and found.accepted_at_depth is not None and found.num_steps is not None
            assert found.num_accepted_tokens == sum(found.accepted_at_depth)
            assert line.figures["acceptance_len"].values[0] == 1 + found.num_accepted_tokens / found.num_steps
    capsys.readouterr()
    assert main(["show", str(results / "chain.jsonl")]) == 0
    assert "drafter: dflash chain of 3" in capsys.readouterr().out
    for name in ("chain", "tree_8"):  # untrained, so most of what is drafted is waste; eight nodes are no eight deep
        assert main(["explain", str(results / f"{name}.jsonl")]) == 0
        assert "drafts go 3 tokens deep" in " ".join(capsys.readouterr().out.split())
    page = tmp_path / "report.html"
    assert main(["report", str(results / "chain.jsonl"), str(results / "tree_8.jsonl"), "--out", str(page)]) == 0
    assert "Acceptance by depth" in page.read_text()


def test_a_finished_job_can_be_lengthened_and_evaluated_alone(
    small: Words, tiny_model: Path, text_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(small("--steps", 2)) == 0
    assert main(small("--steps", 4, "--resume")) == 0
    assert any("training: 4 of 4 steps" in line for line in _said(capsys))
    drafter, out = tmp_path / "job" / "drafter", tmp_path / "evaluated"
    words = ("train-drafter", tiny_model, "--evaluate", drafter, "--out", out, "--eval-text", text_file)
    more = ("--eval-context-lens", "64", "--eval-prompts", "1", "--output-len", "16")
    assert main([*map(str, words), *more]) == 0
    assert len(read_run(out / "acceptance" / "tree_64.jsonl").reported) == 1
    assert main([*map(str, words), *more]) == 2
    assert "exists already" in _said(capsys)[-2]


def test_tokens_are_turned_into_steps(small: Words, capsys: pytest.CaptureFixture[str]) -> None:
    """A step learns 6 sequences x 24 blocks x 3 drafted tokens."""
    assert main(small("--tokens", 2 * 6 * 24 * 3)) == 0
    assert any("training: 2 of 2 steps" in line for line in _said(capsys))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--steps", 1, "--tokens", 5), "--steps and --tokens both say how long"),
        (("--no-regenerate",), "--regenerate and --no-regenerate contradict"),
        (("--evaluate", "x"), "--evaluate needs text"),
        (("--evaluate", "x", "--eval-text", "y"), "--evaluate trains nothing"),
        (("--long-frac", "1.5"), "not a share between 0 and 1"),
        (("--target-layers", "1,a"), "not layer numbers"),
        (("--target-layers", "0,9"), "the target has no such layers"),
        (("--block-size", 1), "a block holds the bonus token and at least one mask"),
        (("--mask-token-id", 99_999), "is not in a vocabulary of"),
        (("--text", "nowhere.txt"), "can't read nowhere.txt"),
        (("--resume",), "holds no job to go on with"),
    ],
)
def test_what_it_refuses(
    small: Words, capsys: pytest.CaptureFixture[str], words: tuple[Any, ...], message: str
) -> None:
    assert main(small(*words)) == 2
    said = [line for line in _said(capsys) if line.startswith("deepdraft: ")]
    assert len(said) == 1
    assert message in said[0]


def test_without_text_or_target_there_is_nothing_to_do(
    tiny_model: Path, text_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train-drafter", str(tiny_model), "--out", str(tmp_path)]) == 2
    assert "there is no text to learn from" in _said(capsys)[0]
    assert main(["train-drafter", str(tmp_path / "none"), "--out", str(tmp_path), "--text", str(text_file)]) == 2
    assert "no model at" in _said(capsys)[0]


def test_a_vocabulary_without_a_mask_token_asks_for_one(
    tiny_model: Path, text_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train-drafter", str(tiny_model), "--out", str(tmp_path / "o"), "--text", str(text_file)]) == 2
    said = _said(capsys)
    assert "has no mask token" in said[0]
    assert "--mask-token-id" in said[1]


def test_ctrl_c_keeps_what_is_done(start: Any, small: Words, tmp_path: Path) -> None:
    started = start(*small("--steps", 100_000))
    started.wait_until_said("features: ")  # what follows is training
    started.signal(signal.SIGINT)
    ran = started.end()
    assert ran.code == 130
    assert "interrupted; what is done is kept" in ran.err
    assert "hint: go on with --resume" in ran.err
    assert (tmp_path / "job" / "checkpoint.pt").exists()
    assert not (tmp_path / "job" / "drafter").exists()
