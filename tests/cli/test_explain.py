"""`deepdraft explain`: findings from results files, and options that can't be used."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deepdraft.cli.main import main

SWEEP = Path(__file__).resolve().parents[2] / "examples" / "reference_deployment" / "sweep.jsonl"


def explain(capsys, *words: str) -> tuple[int, str, str]:
    code = main(["explain", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_reference_deployment_is_explained_in_eighty_columns(capsys):
    code, out, err = explain(capsys, str(SWEEP))
    assert code == 0 and err == ""
    assert max(len(line) for line in out.splitlines()) <= 80
    assert out.index("D201 acceptance_contradiction") < out.index("D105 decode_far_above_floor")
    assert "Next steps, in order of worth" in out
    assert re.search(r"185k: 1430 a token = weights", out)


def test_json_has_findings(capsys):
    code, out, _ = explain(capsys, str(SWEEP), "--json")
    findings = json.loads(out)["findings"]
    assert code == 0 and findings[0]["severity"] == "error"
    assert {"code", "name", "severity", "summary", "evidence", "remedy"} <= set(findings[0])
    assert {"D104", "D105", "D107", "D108", "D201", "D202", "D204"} <= {each["code"] for each in findings}


def test_options_give_what_the_file_lacks(capsys, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
                "intermediate_size": 14336, "vocab_size": 128256,
            }
        )
    )  # fmt: skip
    options = ["--model", str(config), "--device", "bandwidth=3.35TB/s,flops=989TFLOP/s", "--tp", "1"]
    _, out, _ = explain(capsys, str(SWEEP), *options, "--limits", "ttft=5s,tpot=50ms", "--json")
    findings = {each["code"]: each for each in json.loads(out)["findings"]}
    evidence = {each["name"]: each["value"] for each in findings["D105"]["evidence"]}
    assert evidence["KV bytes per token"] == 131_072
    assert "3.4 TB/s of the device given" in findings["D105"]["summary"]
    assert "TTFT 5 s and 50 ms a token" in findings["D108"]["summary"]
    assert "defaults" not in findings["D108"]["summary"]


def test_two_files_are_looked_at_together(capsys, tmp_path):
    again = tmp_path / "again.jsonl"
    again.write_bytes(SWEEP.read_bytes())
    code, out, _ = explain(capsys, str(SWEEP), str(again))
    assert code == 0
    assert re.findall(r"^=== (\S+)", out, re.M) == ["sweep.jsonl", "again.jsonl"]
    other = tmp_path / "sweep.jsonl"
    other.write_bytes(SWEEP.read_bytes())
    _, out, _ = explain(capsys, str(SWEEP), str(other), "--json")
    assert [run["name"] for run in json.loads(out)["runs"]] == [str(SWEEP), str(other)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--device", "abacus"], "not a device"),
        (["--device", "flops=3"], "bandwidth"),
        (["--tp", "0"], "--tp"),
        (["--kv-bytes", "0"], "--kv-bytes"),
        (["--limits", "ttft=soon"], "not a limit"),
        (["--limits", "e2el=3s"], "not a limit"),
        (["--limits", "tpot=0ms"], "not a limit"),
        (["--reserve", "4"], "not an amount of memory"),
        (["--model", "/nowhere/config.json"], "can't read"),
    ],
)
def test_options_that_cannot_be_used(capsys, words, said):
    code, out, err = explain(capsys, str(SWEEP), *words)
    assert code == 2 and out == ""
    assert said in err and len([line for line in err.splitlines() if line.startswith("deepdraft: ")]) == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"{}\n", "not a Deepdraft results file"),
        (b'{"kind":"header","schema_version":999}\n', "newer"),
    ],
)
def test_files_that_cannot_be_read(capsys, tmp_path, content, said):
    path = tmp_path / "odd.jsonl"
    path.write_bytes(content)
    code, out, err = explain(capsys, str(path))
    assert code == 5 and out == "" and said in err


def test_good_lines_of_a_torn_file_count_and_the_loss_is_said(capsys, tmp_path):
    path = tmp_path / "torn.jsonl"
    lines = SWEEP.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:6], lines[6][:100]]))
    code, out, err = explain(capsys, str(path))
    assert code == 0 and "torn" in err and "D104" in out


def test_without_the_analysis_extra_it_says_how_to_get_it(tmp_path):
    """numpy is hidden from a process of its own; `--help` still works there."""
    hide = (
        "import sys; sys.modules['numpy'] = None; from deepdraft.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", hide, "explain", str(SWEEP)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 2 and "deepdraft[analysis]" in ran.stderr and "Traceback" not in ran.stderr
    ran = subprocess.run(
        [sys.executable, "-c", hide, "explain", "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0 and "--device" in ran.stdout


def test_expected_times_need_their_package_or_are_printed(capsys):
    code, out, err = explain(capsys, str(SWEEP), "--expected", "--json")
    if code == 2:
        assert "deepdraft[expected]" in err
        return
    findings = {each["code"]: each for each in json.loads(out)["findings"]}
    assert "prefill" in findings["D110"]["summary"] and "decode" in findings["D110"]["summary"]
