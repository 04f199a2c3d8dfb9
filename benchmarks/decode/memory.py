"""What a process holds whose engine has one request of a certain length: a child for each length, one after another.

Anonymous memory alone (RssAnon of /proc/self/status): weights, pool and what a pass needs, without files that are
mapped. The peak is the largest of looks 5 ms apart.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from deepdraft.infer.engine import Engine
from deepdraft.infer.request import Request, SamplingParams

from .mode import AUTO, NONE

DECODE_LEN = 16
_LOOK_S = 0.005


class Footprint(msgspec.Struct, frozen=True, kw_only=True):
    """Of one child."""

    mode: str
    context_len: int
    before_bytes: int
    """Model, drafter and an empty pool, which takes no memory until it is written."""
    decoding_bytes: int
    """After the last step, the request's pages still held by the radix cache."""
    peak_bytes: int


def footprint(engine: Engine, mode: str, prompt: Sequence[int]) -> Footprint:
    """Prefill the prompt and decode a few tokens, in this process."""
    before_bytes = _anonymous_bytes()
    looks: list[int] = [before_bytes]
    has_ended = threading.Event()

    def look() -> None:
        while not has_ended.wait(_LOOK_S):
            looks.append(_anonymous_bytes())

    looking = threading.Thread(target=look)
    looking.start()
    sampling = SamplingParams(max_tokens=DECODE_LEN, temperature=0.0, ignore_eos=True)
    engine.submit(Request(request_id="asked", prompt_token_ids=tuple(prompt), sampling=sampling))
    while engine.has_work:
        engine.step()
    has_ended.set()
    looking.join()
    decoding_bytes = _anonymous_bytes()
    return Footprint(
        mode=mode,
        context_len=len(prompt),
        before_bytes=before_bytes,
        decoding_bytes=decoding_bytes,
        peak_bytes=max(*looks, decoding_bytes),
    )


def measured_footprints(
    context_lens: Sequence[int], words: Sequence[str], say: Callable[[str], None]
) -> list[Footprint]:
    """A child for each length, without and with a drafter. `words`: the command that `--footprint LEN MODE` is added
    to. Raises CalledProcessError where a child fails."""
    found = []
    for context_len in context_lens:
        for mode in (NONE, AUTO):
            ran = subprocess.run([*words, "--footprint", str(context_len), mode], stdout=subprocess.PIPE, check=True)
            found.append(msgspec.json.decode(ran.stdout, type=Footprint))
            say(f"memory: {context_len:,} {mode}: {found[-1].peak_bytes / 2**20:.0f} MiB at most")
    return found


def _anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "RssAnon":
            return int(value.split()[0]) * 1024
    raise OSError("/proc/self/status has no RssAnon")
