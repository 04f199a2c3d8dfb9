"""`deepdraft import`: what is written, what is said, and with which exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepdraft.cli.main import main
from deepdraft.records.file import read_run

SAMPLES = Path(__file__).parents[1] / "samples"
BENCHY = SAMPLES / "llama-benchy-0.4.0" / "depth_concurrency.json"
LLAMA_BENCH = SAMPLES / "llama.cpp-2026-10" / "llama_bench.json"


def test_a_results_file_that_the_other_commands_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run.jsonl"
    assert main(["import", str(BENCHY), "--out", str(out)]) == 0
    told = capsys.readouterr()
    assert told.out == ""  # data goes to the file
    assert "4 points of llama-benchy" in told.err
    run = read_run(out)
    assert len(run.reported) == 4
    assert run.damage == ()
    assert run.is_complete
    assert run.header.command_line[:2] == ("deepdraft", "import")
    assert main(["show", str(out)]) == 0
    assert "reported by llama-benchy 0.4.0 (depth_concurrency.json)" in capsys.readouterr().out
    assert main(["show", "--json", str(out)]) == 0


def test_a_loss_is_said_and_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = tmp_path / "cut.json"
    content = LLAMA_BENCH.read_text()
    cut.write_text(content[: len(content) // 2])
    assert main(["import", str(cut), "--out", str(tmp_path / "run.jsonl")]) == 1
    assert "breaks off" in capsys.readouterr().err
    assert len(read_run(tmp_path / "run.jsonl").reported) == 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["import", str(BENCHY), "--out", "{out}", "--format", "guidellm"], 5, "it looks like JSON of llama-benchy"),
        (["import", str(BENCHY), "--out", "{out}", "--format", "excel"], 2, "unknown format"),
        (["import", "/nowhere/x.json", "--out", "{out}"], 5, "can't read"),
        (["import", __file__, "--out", "{out}"], 5, "no format that can be imported"),
        (["import", str(BENCHY)], 2, "--out"),
    ],
)
def test_what_can_not_be_done_is_one_line_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    out = tmp_path / "run.jsonl"
    assert main([word.format(out=out) for word in words]) == code
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("deepdraft: ")
    assert said in first
    assert not out.exists()


def test_an_existing_file_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run.jsonl"
    out.write_text("mine")
    assert main(["import", str(BENCHY), "--out", str(out)]) == 5
    assert out.read_text() == "mine"
    assert "exists already" in capsys.readouterr().err


def test_a_log_without_points_keeps_its_facts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run.jsonl"
    assert main(["import", str(SAMPLES / "vllm-0.32.0" / "server_log.txt"), "--out", str(out)]) == 0
    assert read_run(out).header.capabilities.kv_pool_tokens == 524_288
    assert main(["show", str(out)]) == 0
    assert "No point gave figures" in capsys.readouterr().out
