"""`transformers serve` as a child that behaves like our embedded servers: prints its URL when ready, ends with its
parent.

Run as `python -m benchmarks.contenders.transformers_server FOLDER`, with a Python that has transformers[serving].
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from deepdraft.embedded import EmbeddedSpec

_READY_LIMIT_S = 110.0
_SERVE = "from transformers.cli.transformers import main; main()"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformersSpec(EmbeddedSpec):
    """How it is set up: float32 on the CPU, without continuous batching, as it serves one request at a time best."""

    label: ClassVar[str] = "transformers serve"
    default_context_lens: ClassVar[str] = "1k"

    folder: Path
    python: str = sys.executable
    """A Python with transformers[serving]."""

    def command(self) -> list[str]:
        """See EmbeddedSpec."""
        return [sys.executable, "-m", __spec__.name, str(self.folder), "--python", self.python]

    def environment(self) -> Mapping[str, str]:
        """See EmbeddedSpec."""
        threads = {} if self.num_threads is None else {"OMP_NUM_THREADS": str(self.num_threads)}
        return {"HF_HUB_OFFLINE": "1", **threads}


def main() -> int:
    """Serve until standard input closes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    port = _free_port()
    words = [options.python, "-c", _SERVE, "serve", options.folder, "--host", "127.0.0.1", "--port", str(port)]
    child = subprocess.Popen([*words, "--device", "cpu", "--dtype", "float32"], stdin=subprocess.DEVNULL, stdout=2)
    try:
        url = f"http://127.0.0.1:{port}"
        if not _is_ready(child, url):
            return 1
        print(f"url {url}", flush=True)
        sys.stdin.buffer.read()
    finally:
        child.kill()  # it has nothing to save, and our own parent waits two seconds only
        child.wait()
    return 0


def _is_ready(child: subprocess.Popen[bytes], url: str) -> bool:
    deadline = time.monotonic() + _READY_LIMIT_S
    while child.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            if answer.status == 200:
                return True
        time.sleep(0.2)
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
