"""`compare --run --resume` on servers of our own: what was begun with two drafters goes on with the same two."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import deepdraft
from deepdraft.metrics import output_tokens, points_of
from deepdraft.records.file import read_run

LIMIT_S = 150
EMBEDDED_MODEL = Path(deepdraft.__file__).parent / "infer" / "embedded_model" / "config.json"


@pytest.mark.timeout(LIMIT_S * 2)
@pytest.mark.skipif(not EMBEDDED_MODEL.is_file(), reason="the embedded model is not in this tree")
@pytest.mark.usefixtures("tiny_model")  # skips where the inference stack is not installed
def test_two_drafters_go_on_where_they_stopped(tmp_path: Path) -> None:
    def compare(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "deepdraft", "compare", "--run", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=tmp_path)

    paths = [tmp_path / f"x-{side}.jsonl" for side in "ab"]
    measure = ("--context-len", "300", "--decode-len", "8", "--repeats", "2", "--warmups", "0")
    assert compare("embedded", "embedded --drafter ngram", *measure, "--out", "x").returncode == 0
    whole = [read_run(path) for path in paths]
    for path in paths:  # as if it had been killed after the first round
        lines = path.read_bytes().splitlines(keepends=True)
        end = next(index for index, line in enumerate(lines) if line.startswith(b'{"kind":"trial"'))
        path.write_bytes(b"".join(lines[: end + 1]))

    ran = compare("--resume", "x")
    assert ran.returncode == 0, ran.stderr
    assert "with the embedded model --drafter ngram)" in ran.stderr
    for before, path in zip(whole, paths, strict=True):
        after = read_run(path)
        assert after.is_complete
        assert after.trials[0] == before.trials[0]
        assert [trial.trial_id for trial in after.trials] == [trial.trial_id for trial in before.trials]
        assert after.header.spec.embedded_flags == before.header.spec.embedded_flags
        (point,) = points_of(after)
        assert point.num_ok == 2
        assert all(output_tokens(each.trace) == 8 for each in after.measurements)
