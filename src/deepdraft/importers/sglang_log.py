"""The log of an SGLang server (0.5.12 to 0.5.23): memory from its start, decode rate and acceptance from its ticks.

A decode line comes every --decode-log-interval steps. Lines give a point where one request ran alone: its prompt from
the prefill lines (one a chunk), its rate from the decode lines after the first, which holds the prefill's time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from deepdraft.importers.document import Document
from deepdraft.importers.field import counted, file_name, known, samples, text
from deepdraft.importers.imported import Imported
from deepdraft.importers.memory_note import GIB, memory_notes
from deepdraft.records import Reported, Ternary

TOOL = "an SGLang log"
_UNKNOWNS = (
    "time to first token: the log has whole seconds, and no line when a request arrives",
    "anything about requests that ran beside others: only those that ran alone give points",
)
_TRAPS = (
    "decode lines come every --decode-log-interval steps (40 unless set): a short answer may leave none",
    "the first decode line after a prefill divides by a time that holds the prefill: it is left out",
    "input throughput divides by the time since the line before, idle time included: it is left out",
    "accept len is the mean over the steps since the line before, bonus token included",
)
_MARKS = ("max_total_num_tokens=", "Prefill batch", "Decode batch", "Load weight end.")
_PREFILL = re.compile(
    r"Prefill batch(?: \[\d+\])?, #new-seq: (\d+), #new-token: (\d+), #cached-token: (\d+),.*?#running-req: (\d+)"
)
_PENDING = re.compile(r"#pending-token: (\d+)")
_DECODE = re.compile(r"Decode batch(?: \[\d+\])?, #running-req: (\d+), #(?:full )?token: (\d+)")
_RATE = re.compile(r"gen throughput \(token/s\): (\d+(?:\.\d+)?)")
_ACCEPT_LEN = re.compile(r"(?<!block )accept len: (\d+(?:\.\d+)?)")
_SETTING_NAMES = (
    "model_path", "served_model_name", "tp_size", "dp_size", "context_length", "mem_fraction_static", "page_size",
    "chunked_prefill_size", "max_running_requests", "attention_backend", "kv_cache_dtype", "quantization",
    "speculative_algorithm", "speculative_num_draft_tokens", "speculative_dflash_draft_window_size",
    "decode_log_interval", "disable_radix_cache", "disable_cuda_graph", "disable_overlap_schedule",
)  # fmt: skip
_BYTES = {
    "available_before_weights_bytes": re.compile(r"Load weight begin\. avail mem=([\d.]+) GB"),
    "weight_bytes": re.compile(r"Load weight end\..*mem usage=([\d.]+) GB"),
    "available_after_pool_bytes": re.compile(r"Memory pool end\. avail mem=([\d.]+) GB"),
    "reserve_bytes": re.compile(r"max_total_num_tokens=.*available_\w+_mem=([\d.]+) GB"),
}
_LAST = ("available_after_pool_bytes", "reserve_bytes")
_AFTER_WEIGHTS = re.compile(r"Load weight end\..*avail mem=([\d.]+) GB")
_POOL_MADE = re.compile(r"KV [Cc]ache is allocated|KV Cache VA upper bound|Use sliding window memory pool")
_KV_SIZE = re.compile(
    r"KV [Cc]ache(?: is)? allocated\..*?#tokens: (\d+), (?:KV|K) size: ([\d.]+) GB(?:, V size: ([\d.]+))?"
)
_RANK = re.compile(r"^\[[^\]]* TP(\d+)\b[^\]]*\]", re.MULTILINE)
_GRAPH = re.compile(r"Capture .*?end\..*?mem usage=([\d.]+) GB")
_LIMITS = re.compile(r"max_total_num_tokens=(\d+), .*?max_running_requests=(\d+), context_len=(\d+)")


def recognises(document: Document) -> bool:
    """By lines that only this engine writes."""
    return not document.objects and any(mark in document.text for mark in _MARKS)


def read(document: Document) -> Imported:
    """Points of requests that ran alone, and the memory of the last start."""
    lines = document.text.splitlines()
    settings = _settings(document.text)
    memory, limits = _memory(document.text)
    pool, num_slots, context_len = limits
    if memory:
        settings["memory"] = memory
    algorithm = text(settings, "speculative_algorithm")
    points = tuple(line for alone in _alone(lines) if (line := alone.line()) is not None)
    page_size = settings.get("page_size")
    notes = memory_notes(memory, pool)
    num_retracted = sum(1 for line in lines if "Retract requests" in line)
    if num_retracted:
        notes.append(("memory", f"the KV pool was full {counted(num_retracted, 'time')} and requests were retracted"))
    return Imported(
        tool=TOOL,
        lines=points,
        engine="sglang",
        model=file_name(text(settings, "served_model_name") or text(settings, "model_path")),
        speculation=_speculation(document.text, algorithm, points),
        speculation_method=algorithm,
        max_context_len=context_len,
        kv_pool_tokens=pool,
        page_size=page_size if isinstance(page_size, int) else None,
        num_slots=num_slots,
        settings=settings,
        unknowns=_UNKNOWNS,
        traps=_TRAPS,
        notes=tuple(notes),
    )


@dataclass(slots=True)
class _Alone:
    """What the log says of one request that nothing ran beside."""

    prompt_len: int
    cached_len: int
    rates: list[float] = field(default_factory=list)
    accept_lens: list[float] = field(default_factory=list)

    def line(self) -> Reported | None:
        """The point; None when no decode line but the first came."""
        figures = known(
            {
                "decode_tok_s": samples(
                    self.rates[1:], definition="gen throughput of the log: tokens / time since the line before"
                ),
                "acceptance_len": samples(self.accept_lens[1:], definition="accept len of the log, bonus included"),
            }
        )
        if "decode_tok_s" not in figures:
            return None
        return Reported(
            context_len=self.prompt_len,
            figures=figures,
            is_cold=self.cached_len <= 0.01 * self.prompt_len,
            remarks=(f"{self.cached_len} of {self.prompt_len} prompt tokens came from the cache",),
        )


def _alone(lines: list[str]) -> Iterator[_Alone]:
    """The requests that ran alone, in order."""
    current: _Alone | None = None
    is_chunking = False
    for line in lines:
        if prefill := _PREFILL.search(line):
            num_new, new_len, cached_len, num_running = map(int, prefill.groups())
            pending = _PENDING.search(line)
            if is_chunking and current is not None and num_new <= 1 and not num_running:
                current.prompt_len += new_len
            else:
                if current is not None:
                    yield current
                is_single = num_new == 1 and num_running == 0
                current = _Alone(prompt_len=new_len + cached_len, cached_len=cached_len) if is_single else None
            is_chunking = pending is not None and int(pending[1]) > 0
        elif current is not None and (decode := _DECODE.search(line)):
            rate, accept_len = _RATE.search(line), _ACCEPT_LEN.search(line)
            if int(decode[1]) != 1 or rate is None:
                current = None
                continue
            current.rates.append(float(rate[1]))
            if accept_len is not None:
                current.accept_lens.append(float(accept_len[1]))
    if current is not None:
        yield current


def _speculation(log: str, algorithm: str | None, points: Sequence[Reported]) -> Ternary:
    """Whether a drafter is active: by the server's arguments, else by acceptance in its lines."""
    if algorithm is not None or any("acceptance_len" in point.figures for point in points):
        return "yes"
    return "no" if re.search(r"speculative_algorithm['\"]?\s*[:=]\s*None", log) else "unknown"


def _settings(log: str) -> dict[str, Any]:
    """The named settings of the last `server_args=` line, as numbers, truth values or text."""
    at = log.rfind("server_args=")
    if at < 0:
        return {}
    line = log[at : log.find("\n", at) if log.find("\n", at) > 0 else len(log)]
    found: dict[str, Any] = {}
    for name in _SETTING_NAMES:
        match = re.search(rf"\b{name}['\"]?\s*[:=]\s*(?:'([^']*)'|\"([^\"]*)\"|([^,)}}\s]+))", line)
        if match is not None and (value := _value(match)) is not None:
            found[name] = value
    return found


def _value(match: re.Match[str]) -> Any:
    quoted = match[1] if match[1] is not None else match[2]
    if quoted is not None:
        return quoted
    word = match[3]
    if word in ("None", "True", "False"):
        return {"None": None, "True": True, "False": False}[word]
    if re.fullmatch(r"-?\d+", word):
        return int(word)
    return float(word) if re.fullmatch(r"-?\d+\.\d+(e-?\d+)?", word) else word


def _first_rank(log: str) -> str:
    """The lines of one tensor-parallel rank, and those that name none."""
    ranks = [int(rank) for rank in _RANK.findall(log)]
    if not ranks:
        return log
    first = min(ranks)
    lines = log.splitlines()
    return "\n".join(line for line in lines if (rank := _RANK.search(line)) is None or int(rank[1]) == first)


def _memory(log: str) -> tuple[dict[str, int], tuple[int | None, int | None, int | None]]:
    """Bytes by our names, and (pool tokens, running requests, context limit), of the last start in the log. The log's
    GB are GiB. Of several ranks the first one's lines count, and the smallest reserve.

    A drafter has lines of its own, before the target's pool is made (0.5.23) or after it (0.5.12): what was free
    before the weights is the first line's, what was free after them that of the last line before the first pool.
    """
    log = log[max(log.rfind("server_args="), 0) :]
    reserves = _BYTES["reserve_bytes"].findall(log)
    log = _last_start(_first_rank(log))
    memory = {}
    for name, pattern in _BYTES.items():
        found = pattern.findall(log)
        if found:
            memory[name] = round(float(found[-1 if name in _LAST else 0]) * GIB)
    if reserves:
        memory["reserve_bytes"] = round(min(map(float, reserves)) * GIB)
    sized = _POOL_MADE.search(log)
    after = _AFTER_WEIGHTS.findall(log[: sized.start()] if sized is not None else log)
    if after:
        memory["available_after_weights_bytes"] = round(float(after[-1]) * GIB)
    sizes = _KV_SIZE.findall(log)
    if sizes:
        memory["kv_cache_bytes"] = round(sum(float(first) + float(second or 0) for _, first, second in sizes) * GIB)
    graphs = _GRAPH.findall(log)
    if graphs:
        memory["graph_bytes"] = round(sum(map(float, graphs)) * GIB)
    limits = _LIMITS.findall(log)
    if limits:
        pool, num_slots, context_len = map(int, limits[-1])
        return memory, (pool, num_slots, context_len)
    return memory, (int(sizes[0][0]) if sizes else None, None, None)


def _last_start(log: str) -> str:
    """From the end of the start before: several starts without arguments between them may stand in one file."""
    ends = [match.end() for match in _LIMITS.finditer(log)]
    return log[ends[-2] :] if len(ends) > 1 else log
