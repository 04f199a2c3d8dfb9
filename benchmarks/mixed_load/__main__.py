"""Minutes of mixed load on our own server: random lengths, clients that leave, requests that are none.

Each greedy answer is held, token for token, against the same prompt's answer when it was alone on a cold server. In
the end every page must be free or cached. Ends with 1 when an answer was wrong or a page leaked. A line a minute on
standard error says how far it is and what memory the server holds.

    python -m benchmarks.mixed_load --minutes 30 --write benchmarks/results
    python -m benchmarks.mixed_load --minutes 0.3 --clients 8 --model FOLDER -- --kv-pool-tokens 4k
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import itertools
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from benchmarks.peers.machine import machine

from .client import Tally, run_client
from .prompts import Known, known_answers
from .result import HEALTH_P99_LIMIT_S, Result, percentile
from .watch import Watch, by_minute, figures, slope_bytes_min
from .wire import Address, ask

_IDLE_LIMIT_S = 120.0
_NUM_WRONG_SHOWN = 5


def main() -> int:
    """Run it; the table goes to standard output."""
    options, serve_flags = _options()
    command = [sys.executable, "-m", "deepdraft", "serve", "--model", options.model, "--port", "0", *serve_flags]
    with _serving(command) as (address, pid):
        result = asyncio.run(
            _run(Watch(address, pid), options, " ".join(["deepdraft serve --model", options.model, *serve_flags]))
        )
    print(result.markdown())
    for line in result.wrong:
        print(f"wrong: {line}")
    if result.health_p99_s > HEALTH_P99_LIMIT_S:
        print(f"/health p99 is beyond {HEALTH_P99_LIMIT_S * 1e3:.0f} ms")
    if options.write is not None:
        options.write.mkdir(parents=True, exist_ok=True)
        content = msgspec.json.format(msgspec.json.encode(result), indent=2)
        (options.write / "mixed_load.json").write_bytes(content + b"\n")
        (options.write / "mixed_load.md").write_text(result.markdown())
    return 0 if result.is_right else 1


def _options() -> tuple[argparse.Namespace, Sequence[str]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--prompts", type=int, default=40, help="different prompts")
    parser.add_argument("--max-prompt-len", type=int, default=2000)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write mixed_load.json and mixed_load.md there")
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    return parser.parse_args(words[:cut]), words[cut + 1 :]


@contextlib.contextmanager
def _serving(command: Sequence[str]) -> Iterator[tuple[Address, int]]:
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line.startswith("url "), "the server did not start"
        parts = urlsplit(line.removeprefix("url ").strip())
        assert parts.hostname is not None and parts.port is not None
        yield Address(parts.hostname, parts.port), child.pid
    finally:
        child.terminate()
        child.wait(60)


async def _run(watch: Watch, options: argparse.Namespace, server: str) -> Result:
    address = watch.address
    known = await known_answers(
        address,
        num_prompts=options.prompts,
        max_prompt_len=options.max_prompt_len,
        max_tokens=options.max_tokens,
        seed=options.seed,
    )
    tally = Tally()
    before = figures(address)
    began_s = time.monotonic()
    with watch.watching():
        saying = asyncio.create_task(_say_on(watch, tally))
        await _load(address, options, known, tally)
        saying.cancel()
    duration_s = time.monotonic() - began_s
    after = await _idle_figures(address)
    num_pages = before["pages_free"] + before["pages_held"] + before["pages_cached"]
    num_lost = abs(num_pages - after["pages_free"] - after["pages_cached"])
    status, _ = await ask(address, "POST", "/flush_cache")
    num_kept = num_pages - (await _idle_figures(address))["pages_free"] if status == 200 else num_pages
    return Result(
        machine=machine(),
        date=datetime.date.today().isoformat(),
        server=server,
        num_clients=options.clients,
        duration_s=duration_s,
        num_completed=tally.counts["completed"],
        num_disconnected=tally.counts["disconnected"],
        num_malformed=tally.counts["malformed"],
        num_turned_away=tally.counts["turned_away"],
        num_output_tokens=tally.num_output_tokens,
        num_preemptions=int(after["deepdraft:num_preemptions_total"] - before["deepdraft:num_preemptions_total"]),
        num_wrong=len(tally.wrong),
        wrong=tuple(tally.wrong[:_NUM_WRONG_SHOWN]),
        num_leaked_pages=int(max(num_lost, num_kept)),
        health_p50_s=percentile(watch.health_s, 0.5),
        health_p99_s=percentile(watch.health_s, 0.99),
        health_max_s=max(watch.health_s, default=0.0),
        num_health_checks=len(watch.health_s),
        resident_start_bytes=before["process_resident_memory_bytes"],
        resident_end_bytes=after["process_resident_memory_bytes"],
        resident_slope_bytes_min=slope_bytes_min([(at_s, one.resident_bytes) for at_s, one in watch.memory]),
        memory_by_minute=by_minute(watch.memory),
    )


async def _say_on(watch: Watch, tally: Tally) -> None:
    """A line a minute."""
    for minute in itertools.count(1):
        await asyncio.sleep(60)
        if watch.memory:
            counts = f"{tally.counts['completed']} completed, {len(tally.wrong)} wrong"
            print(f"minute {minute}: {watch.memory[-1][1].text}; {counts}", file=sys.stderr, flush=True)


async def _load(address: Address, options: argparse.Namespace, known: Sequence[Known], tally: Tally) -> None:
    until_s = asyncio.get_running_loop().time() + 60 * options.minutes
    clients = (
        run_client(address, known, tally, random.Random(options.seed * 1000 + number), until_s, options.max_tokens)
        for number in range(options.clients)
    )
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client)


async def _idle_figures(address: Address) -> dict[str, float]:
    """Once nothing runs any more."""
    deadline_s = time.monotonic() + _IDLE_LIMIT_S
    while True:
        found = figures(address)
        if not found["deepdraft:num_requests_running"] or time.monotonic() > deadline_s:
            return found
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
