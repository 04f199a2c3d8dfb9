"""The log of a llama.cpp server: prefill, decode and acceptance of each request by its clock, memory of its start.

`prompt eval` counts only the tokens that were computed; the whole prompt follows from the `release` line, which tells
the tokens in the slot at the end. A request without one gives no point.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from deepdraft.importers.document import Document
from deepdraft.importers.field import counted, file_name, known, one
from deepdraft.importers.imported import Imported
from deepdraft.importers.memory_note import memory_notes
from deepdraft.records import Acceptance, Reported

TOOL = "a llama.cpp log"
_UNKNOWNS = (
    "time to first token as a client sees it: queueing and network are not in the log",
    "whether other slots were busy meanwhile",
)
_TRAPS = (
    "`prompt eval time` covers only the tokens that the cache did not have",
    "`eval time` divides by all output tokens, the first of which came from the prefill",
    "older builds print `draft acceptance rate`; both spellings are read",
)
_MARKS = ("slot print_timing:", "prompt eval time =", "llama_kv_cache", "load_model: initializing, n_slots")
_TASK = re.compile(r"slot\s+(?P<what>\w+):\s+id\s+(?P<id>\d+) \| task (?P<task>-?\d+) \|")
_PROMPT = re.compile(r"prompt eval time =\s*([\d.]+) ms /\s*(\d+) tokens")
_EVAL = re.compile(r"(?<!prompt )eval time =\s*([\d.]+) ms /\s*(\d+) (?:tokens|runs)")
_DRAFT = re.compile(
    r"draft acceptance(?: rate)?\s*=\s*[\d.]+\s*\(\s*(\d+) accepted\s*/\s*(\d+) generated\)"
    r"(?:,\s*mean len\s*=\s*([\d.]+))?"
)
_RELEASE = re.compile(r"stop processing: n_(?:tokens|past) = (\d+), truncated = (\d)")
_MODEL = re.compile(r"loading model '([^']+)'")
_BUILD = re.compile(r"build(?:_info)?: (\S+)")
_SLOTS = re.compile(r"n_slots = (\d+)(?:, n_ctx_slot = (\d+))?")
_KV = re.compile(r"llama_kv_cache\w*: size =\s*([\d.]+) MiB \(\s*(\d+) cells")
_COMPUTE = re.compile(r"compute buffer size =\s*([\d.]+) MiB")
_WEIGHTS = re.compile(r"model buffer size =\s*([\d.]+) MiB")
_MIB = 2**20


def recognises(document: Document) -> bool:
    """By lines that only this engine writes."""
    return not document.objects and any(mark in document.text for mark in _MARKS)


def read(document: Document) -> Imported:
    """One point a finished request."""
    text = document.text
    requests = _requests(text)
    points = tuple(line for request in requests if (line := request.line()) is not None)
    memory, pool = _memory(text)
    slots, models, builds = _SLOTS.findall(text), _MODEL.findall(text), _BUILD.findall(text)
    is_speculating = any(request.num_drafted is not None for request in requests) or "loading draft model" in text
    num_lost = len(requests) - len(points)
    return Imported(
        tool=TOOL,
        lines=points,
        engine="llamacpp",
        engine_version=builds[-1] if builds else None,
        model=file_name(models[-1]) if models else None,
        speculation="yes" if is_speculating else "unknown",
        max_context_len=int(slots[-1][1]) if slots and slots[-1][1] else None,
        num_slots=int(slots[-1][0]) if slots else None,
        kv_pool_tokens=pool,
        settings={"memory": memory} if memory else {},
        unknowns=_UNKNOWNS,
        traps=_TRAPS,
        notes=tuple(memory_notes(memory, pool)),
        losses=(f"{counted(num_lost, 'request')} did not end in this log: no length known",) if num_lost else (),
    )


@dataclass(slots=True)
class _Request:
    """One task of one slot."""

    prompt_ms: float | None = None
    num_computed: int | None = None
    eval_ms: float | None = None
    num_output: int | None = None
    num_accepted: int | None = None
    num_drafted: int | None = None
    mean_len: float | None = None
    num_in_slot: int | None = None
    was_truncated: bool = False

    def line(self) -> Reported | None:
        """The point; None when the log does not tell its prompt's length."""
        if self.num_in_slot is None or self.num_output is None or self.num_computed is None or self.was_truncated:
            return None
        prompt_len = self.num_in_slot - (self.num_output - 1)
        if prompt_len < self.num_computed:
            return None
        cached_len = prompt_len - self.num_computed
        figures = known(
            {
                "tpot_s": one(
                    self.eval_ms / 1e3 / (self.num_output - 1) if self.eval_ms and self.num_output > 1 else None,
                    None,
                    definition="eval time / (output tokens - 1)",
                ),
                "acceptance_len": one(self.mean_len, "mean", num_samples=None, definition="mean len of the log"),
                "server_prefill_s": one(self.prompt_ms / 1e3 if self.prompt_ms else None, None),
                "server_prefill_tok_s": one(
                    1e3 * self.num_computed / self.prompt_ms if self.prompt_ms else None, None
                ),
            }
        )
        return Reported(
            context_len=prompt_len,
            decode_len=self.num_output,
            figures=figures,
            acceptance=self._acceptance(),
            is_cold=cached_len <= 0.01 * prompt_len,
            remarks=(f"{cached_len} of {prompt_len} prompt tokens came from the cache",) if cached_len else (),
        )

    def _acceptance(self) -> Acceptance | None:
        if self.num_drafted is None:
            return None
        return Acceptance(
            source="server log: `draft acceptance` line",
            num_draft_tokens=self.num_drafted,
            num_accepted_tokens=self.num_accepted,
            stated_acceptance_len=self.mean_len,
        )


def _requests(text: str) -> list[_Request]:
    """The requests that have timings, in order. Older builds print the timings on lines of their own, below the one
    that names the task."""
    found: dict[tuple[str, str, int], _Request] = {}
    current: _Request | None = None
    starts: dict[tuple[str, str], int] = {}
    for line in text.splitlines():
        if named := _TASK.search(line):
            slot_task = named["id"], named["task"]
            if named["what"] == "launch_slot_":  # task numbers begin again when the server does
                starts[slot_task] = starts.get(slot_task, 0) + 1
            current = found.setdefault((*slot_task, starts.get(slot_task, 0)), _Request())
        if current is None:
            continue
        if prompt := _PROMPT.search(line):
            current.prompt_ms, current.num_computed = float(prompt[1]), int(prompt[2])
        elif decode := _EVAL.search(line):
            current.eval_ms, current.num_output = float(decode[1]), int(decode[2])
        elif draft := _DRAFT.search(line):
            current.num_accepted, current.num_drafted = int(draft[1]), int(draft[2])
            current.mean_len = float(draft[3]) if draft[3] else None
        elif release := _RELEASE.search(line):
            current.num_in_slot, current.was_truncated = int(release[1]), release[2] != "0"
    return [request for key, request in found.items() if key[1] != "-1"]


def _memory(text: str) -> tuple[dict[str, int], int | None]:
    """Bytes by our names, and cells of the KV cache."""
    memory: dict[str, int] = {}
    caches = _KV.findall(text)
    if caches:
        memory["kv_cache_bytes"] = round(sum(float(size) for size, _ in caches) * _MIB)
    for name, pattern in (("weight_bytes", _WEIGHTS), ("compute_buffer_bytes", _COMPUTE)):
        sizes = pattern.findall(text)
        if sizes:
            memory[name] = round(sum(map(float, sizes)) * _MIB)
    return memory, max(int(cells) for _, cells in caches) if caches else None
