"""The least a Python client can do: raw asyncio streams, a stamp for each read, everything parsed after the stream.

    python floor.py URL --context-len 256 --decode-len 64 --streams 8

Prints {"ttft_ms": [...], "tpot_ms": [...]}. It knows one well-behaved server only: chunked transfer, one token an
event, no errors. It runs by itself, with the standard library alone; it is the mark that the others are held to.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from urllib.parse import urlsplit

Reads = list[tuple[float, bytes]]


async def stream(host: str, port: int, request: bytes, ready: asyncio.Event) -> tuple[float, Reads]:
    """Send one request when `ready` is set; returns when it was sent, and every read with its time."""
    reader, writer = await asyncio.open_connection(host, port)
    await ready.wait()
    sent_at = time.monotonic()
    writer.write(request)
    reads: Reads = []
    tail = b""
    while not tail.endswith(b"0\r\n\r\n"):
        chunk = await reader.read(65536)
        if not chunk:
            break
        reads.append((time.monotonic(), chunk))
        tail = (tail + chunk)[-5:]
    writer.close()
    return sent_at, reads


def token_times(reads: Reads) -> list[float]:
    """When each event with text arrived."""
    times, pending = [], b""
    for at, chunk in reads:
        pending += chunk
        *lines, pending = pending.split(b"\n")
        for line in lines:
            if not line.startswith(b"data: {"):
                continue
            choices = json.loads(line[6:])["choices"]
            if choices and choices[0]["delta"].get("content"):
                times.append(at)
    return times


async def run(options: argparse.Namespace) -> None:
    address = urlsplit(options.url)
    ready = asyncio.Event()
    tasks = []
    for index in range(options.streams):
        body = json.dumps(
            {
                "model": "sim",
                "messages": [{"role": "user", "content": f"{index} " + "water " * options.context_len}],
                "max_tokens": options.decode_len,
                "stream": True,
            }
        )
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {address.netloc}\r\ncontent-type: application/json\r\n"
        request = f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()
        tasks.append(asyncio.create_task(stream(address.hostname or "", address.port or 80, request, ready)))
    await asyncio.sleep(0.05)
    ready.set()
    ttft_ms, tpot_ms = [], []
    for sent_at, reads in await asyncio.gather(*tasks):
        times = token_times(reads)
        ttft_ms.append((times[0] - sent_at) * 1e3)
        tpot_ms.append((times[-1] - times[0]) / (len(times) - 1) * 1e3)
    print(json.dumps({"ttft_ms": ttft_ms, "tpot_ms": tpot_ms}))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("url")
    parser.add_argument("--context-len", type=int, required=True)
    parser.add_argument("--decode-len", type=int, required=True)
    parser.add_argument("--streams", type=int, required=True)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
