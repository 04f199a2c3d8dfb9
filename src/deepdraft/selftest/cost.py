"""What the client itself costs: CPU of a whole run, of --help, of an import, and what is loaded for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from deepdraft.errors import DeepdraftError
from deepdraft.selftest.check import Check, Error
from deepdraft.simulate.patterns import PATTERNS
from deepdraft.simulate.process import running

FIXED_COST_TARGET_S = 0.5
HELP_TARGET_S = 0.3
IMPORT_TARGET_MS = 150.0
_HEAVY = ("torch", "transformers", "numpy", "aiohttp", "httpx", "rich", "tokenizers")
_RUNS = 5


def checks() -> tuple[Check, ...]:
    """The cost checks."""
    return (Check(name="cost", about="the client's own CPU and imports", run=_cost),)


def _cost(_num_repeats: int) -> tuple[Error, ...]:
    sweep_s = _best_cpu_s(_sweep_words)
    help_s = _best_cpu_s(lambda _: [sys.executable, "-m", "deepdraft", "--help"])
    import_ms = min(_import_ms("deepdraft") for _ in range(_RUNS))
    client_ms = min(_import_ms("deepdraft.bench.sweep") for _ in range(_RUNS))
    heavy = _heavy_modules("deepdraft.cli.main, deepdraft.bench.sweep, deepdraft.report")
    return (
        Error(name="sweep of one request, CPU", value=sweep_s, target=FIXED_COST_TARGET_S, unit="s"),
        Error(name="--help, CPU", value=help_s, target=HELP_TARGET_S, unit="s"),
        Error(name="import deepdraft, CPU", value=import_ms, target=IMPORT_TARGET_MS, unit="ms"),
        Error(name="import the client, CPU", value=client_ms, target=IMPORT_TARGET_MS, unit="ms"),
        Error(name="heavy modules loaded", value=float(len(heavy)), target=0, unit="", note=", ".join(heavy)),
    )


def _sweep_words(folder: str) -> list[str]:
    out = Path(folder) / "cost.jsonl"
    words = [sys.executable, "-m", "deepdraft", "sweep", "{url}", "--context-len", "400", "--decode-len", "16"]
    return [*words, "--repeats", "1", "--warmups", "0", "--out", str(out), "--quiet"]


def _best_cpu_s(words_for: Callable[[str], list[str]]) -> float:
    """The least CPU seconds (user and system) of several runs of a command; noise only adds."""
    with running(PATTERNS["plain"]) as server:
        return min(_cpu_s(words_for, server.url) for _ in range(_RUNS))


def _cpu_s(words_for: Callable[[str], list[str]], url: str) -> float:
    with tempfile.TemporaryDirectory(prefix="deepdraft-selftest-") as folder:
        words = [url if word == "{url}" else word for word in words_for(folder)]
        child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise DeepdraftError(f"`{' '.join(words[1:4])} ...` ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def _import_ms(module: str) -> float:
    code = f"import time; start = time.process_time(); import {module}; print((time.process_time() - start) * 1e3)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def _heavy_modules(modules: str) -> list[str]:
    code = f"import json, sys, {modules}; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    )
    return [name for name in _HEAVY if name in loaded]
