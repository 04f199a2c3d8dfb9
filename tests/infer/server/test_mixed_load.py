"""A short run of benchmarks/mixed_load: clients that leave, requests that are none, a pool too small for all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_FLAGS = ("--kv-pool-tokens", "800", "--page-size", "4", "--chunk-len", "64", "--num-threads", "1", "--check")


def test_nothing_leaks_and_no_answer_is_wrong(random_folder, tmp_path) -> None:
    command = [sys.executable, "-m", "benchmarks.mixed_load", "--minutes", "0.3", "--clients", "12"]
    command += ["--model", str(random_folder), "--max-prompt-len", "400", "--max-tokens", "48", "--prompts", "24"]
    done = subprocess.run(
        [*command, "--write", str(tmp_path), "--", *_FLAGS],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "mixed_load.json").read_text())
    print(done.stdout)
    assert result["num_wrong"] == 0
    assert result["num_leaked_pages"] == 0
    assert min(result["num_completed"], result["num_disconnected"], result["num_malformed"]) > 0
    assert result["num_preemptions"] > 0  # the pool was too small for all at times
    assert result["resident_end_bytes"] - result["resident_start_bytes"] < 100 * 2**20
    assert result["memory_by_minute"]  # that it does not grow with the requests: test_bounded_memory
    assert result["health_p50_s"] < 0.1  # the 99th percentile is the long run's to judge, on a quiet machine
