"""`deepdraft report`: every format of whole, damaged and foreign files, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("scipy", reason="laws and findings need the extra `analysis`")

REFERENCE = Path(__file__).parents[2] / "examples" / "reference_deployment" / "sweep.jsonl"


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "sweep.jsonl"
    path.write_bytes(REFERENCE.read_bytes())
    return path


def test_text_is_the_default_and_fits_a_terminal(called, file) -> None:
    ran = called("report", file)
    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "model Kimi K2.6 (INT4 weights)" in ran.out
    assert "Findings\n========" in ran.out and "Laws\n====" in ran.out


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("page.html", b"<!DOCTYPE html>"),
        ("page.md", b"# Deepdraft report: Kimi K2.6"),
        ("page.tex", rb"\documentclass"),
        ("page.csv", b"run_id,"),
        ("page.json", b"{"),
        ("page.txt", b"sglang, model Kimi K2.6"),
        ("page.HTM", b"<!DOCTYPE html>"),
    ],
)
def test_the_name_of_the_file_tells_the_format(called, file, tmp_path, name, start) -> None:
    ran = called("report", file, "--out", tmp_path / name)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.parametrize(("form", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF-")])
def test_pictures(called, file, tmp_path, form, start) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `report`")
    assert called("report", file, "--out", tmp_path / f"plot.{form}").code == 0
    assert (tmp_path / f"plot.{form}").read_bytes().startswith(start)


def test_a_named_format_wins_over_the_name_of_the_file(called, file, tmp_path) -> None:
    assert called("report", file, "--format", "md", "--out", tmp_path / "notes.txt").code == 0
    assert (tmp_path / "notes.txt").read_text().startswith("# Deepdraft report")


def test_json_and_csv_agree_on_every_point(called, file) -> None:
    found = called("report", file, "--format", "json").json
    rows = list(csv.DictReader(io.StringIO(called("report", file, "--format", "csv").out)))
    (run,) = found["runs"]
    assert [point["context_len"] for point in run["points"]] == [int(row["context_len"]) for row in rows]
    medians = [point["tpot_s"] and point["tpot_s"]["median"] for point in run["points"]]
    assert medians == [float(row["tpot_s_median"]) if row["tpot_s_median"] else None for row in rows]
    assert run == {"name": "sweep"} | called("show", file, "--json").json
    assert {law["figure"] for law in found["laws"]} == {"ttft_s", "tpot_s"}
    assert found["findings"] and found["is_explained"] is True


def test_the_findings_are_those_of_explain(called, file) -> None:
    reported = called("report", file, "--format", "json").json["findings"]
    explained = called("explain", file, "--json").json
    findings = explained.get("findings") or [one for run in explained["runs"] for one in run["findings"]]
    assert [(one["code"], one["summary"]) for one in reported] == [(one["code"], one["summary"]) for one in findings]


def test_evidence_is_printed_in_words(called, file) -> None:
    """The reference deployment reads its KV cache at about 14 GB/s."""
    evidence = [
        one for each in called("report", file, "--format", "json").json["findings"] for one in each["evidence"]
    ]
    assert any(one["value"].endswith(" GB/s") for one in evidence)
    assert not [one["value"] for one in evidence if one["value"].endswith(" B/s")]
    assert "1.43 s" in [one["value"] for one in evidence]


def test_a_device_gives_floors(called, file) -> None:
    words = ("--device", "bandwidth=1.8TB/s,flops=500TFLOP/s", "--tp", "8", "--format", "json")
    floors = called("report", file, *words).json["floors"]
    assert [floor["figure"] for floor in floors] == ["ttft_s", "tpot_s"]
    assert all(value > 0 for floor in floors for value in floor["values"])


def test_several_files_are_compared_with_the_first(called, file, tmp_path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_bytes(file.read_bytes().replace(b'"run_id":"', b'"run_id":"other-'))
    found = called("report", file, other, "--format", "json").json
    assert [run["name"] for run in found["runs"]] == ["sweep", "other"]
    (comparison,) = found["comparisons"]
    assert (comparison["before_index"], comparison["after_index"]) == (0, 1)
    assert all(one["verdict"].startswith(("no difference", "cannot tell")) for one in comparison["verdicts"])
    assert called("report", file, other).code == 0


def test_files_of_one_name_are_told_apart(called, file, tmp_path) -> None:
    (tmp_path / "deeper").mkdir()
    other = tmp_path / "deeper" / file.name
    other.write_bytes(file.read_bytes())
    names = [run["name"] for run in called("report", file, other, "--format", "json").json["runs"]]
    assert names == [str(file), str(other)]


def test_a_damaged_file_is_reported_with_its_loss(called, file, tmp_path) -> None:
    file.write_bytes(file.read_bytes()[:-40])
    ran = called("report", file, "--out", tmp_path / "page.html")
    assert ran.code == 0
    assert "the last line is torn" in ran.err
    page = (tmp_path / "page.html").read_text()
    assert "Damaged file: the last line is torn" in page
    assert "Kimi K2.6" in page


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty: nothing was measured"),
        (b'{"results": []}\n', "is not a Deepdraft results file"),
        (b"\x89PNG\r\n\x1a\n", "is not a Deepdraft results file"),
        (b'{"kind":"header","schema_version":999}\n', "was written by a newer Deepdraft"),
    ],
)
def test_a_file_that_cant_be_read_is_one_clear_line(called, tmp_path, content, said) -> None:
    (tmp_path / "bad.jsonl").write_bytes(content)
    ran = called("report", tmp_path / "bad.jsonl", "--out", tmp_path / "page.html")
    assert ran.code == 5
    assert said in ran.said[0]
    assert not (tmp_path / "page.html").exists()


def test_a_binary_picture_goes_to_no_terminal(called, file) -> None:
    ran = called("report", file, "--format", "png")
    assert ran.code == 2
    assert ran.said[1] == "--out report.png"
    assert ran.out == ""


@pytest.mark.parametrize("name", ["page", "page.docx"])
def test_an_unknown_format_is_refused(called, file, tmp_path, name) -> None:
    ran = called("report", file, "--out", tmp_path / name)
    assert ran.code == 2
    assert "--format" in (ran.said[1] or "")


def test_no_results_file_is_overwritten(called, file, tmp_path) -> None:
    before = file.read_bytes()
    link = tmp_path / "link.html"
    os.link(file, link)
    for out in (file, link):
        ran = called("report", file, "--format", "html", "--out", out)
        assert ran.code == 2
        assert "would be overwritten" in ran.said[0]
    assert file.read_bytes() == before


def test_a_place_that_cant_be_written_is_said(called, file, tmp_path) -> None:
    ran = called("report", file, "--out", tmp_path / "nowhere" / "page.html")
    assert ran.code == 5
    assert "can't write" in ran.said[0]


@pytest.mark.parametrize("words", [("--device", "abacus"), ("--tp", "0"), ("--model", "absent.json")])
def test_what_cant_be_used_is_refused(called, file, words) -> None:
    assert called("report", file, *words).code in (2, 5)


def test_nothing_to_draw_is_said(called, file, tmp_path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `report`")
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    ran = called("report", file, "--out", tmp_path / "plot.svg")
    assert ran.code == 5
    assert "nothing to draw" in ran.said[0]


def without(modules: str, *words: object) -> subprocess.CompletedProcess[str]:
    """`deepdraft` where these packages are not installed."""
    launcher = (
        "import sys\n"
        f"for name in {modules!r}.split(): sys.modules[name] = None\n"
        "from deepdraft.cli.main import main\n"
        "sys.exit(main())"
    )
    command = [sys.executable, "-c", launcher, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_without_the_extra_analysis_the_page_still_stands(file, tmp_path) -> None:
    ran = without("numpy scipy", "report", file, "--out", tmp_path / "page.html")
    assert ran.returncode == 0, ran.stderr
    assert "No laws, findings or comparison" in ran.stderr and "pip install 'deepdraft[analysis]'" in ran.stderr
    page = (tmp_path / "page.html").read_text()
    assert "No laws, findings or comparison" in page
    assert "fitted law" not in page.split('id="chart-data"')[1].split("</script>")[0]


def test_without_the_extra_report_a_picture_is_refused(file, tmp_path) -> None:
    ran = without("matplotlib", "report", file, "--out", tmp_path / "plot.svg")
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1] == "hint: pip install 'deepdraft[report]'"


def test_the_same_file_gives_the_same_page(called, file, tmp_path) -> None:
    for name in ("one.html", "two.html"):
        assert called("report", file, "--out", tmp_path / name).code == 0
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()
    data = (tmp_path / "one.html").read_text().split('id="chart-data">')[1].split("</script>")[0]
    assert [chart["name"] for chart in json.loads(data)][:2] == ["ttft", "tpot"]
