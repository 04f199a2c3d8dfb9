"""Watches the server beside the load: how long /health takes, how much memory it holds, and its pages in the end."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from deepdraft.adapters.prometheus import metrics_page

from .wire import Address

_HEALTH_EVERY_S = 0.1
_MINUTE_S = 60.0
_MEMORY_EVERY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What the server holds of the machine's memory."""

    resident_bytes: float
    anonymous_bytes: float | None
    """Without pages of files (weights, libraries), which come and go as the machine likes; None: not told here."""

    @property
    def text(self) -> str:
        """In words."""
        own = "" if self.anonymous_bytes is None else f", {self.anonymous_bytes / 2**20:.1f} of them anonymous"
        return f"{self.resident_bytes / 2**20:.1f} MiB resident{own}"


@dataclass
class Watch:
    """A thread with connections of its own, so that the clients' event loop does not count as the server's."""

    address: Address
    pid: int
    """The server's."""
    health_s: list[float] = field(default_factory=list)
    memory: list[tuple[float, Memory]] = field(default_factory=list)
    """By seconds since the watch began."""
    _over: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch while the block runs."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _run(self) -> None:
        began_s = time.monotonic()
        next_memory_s = began_s
        while not self._over.wait(_HEALTH_EVERY_S):
            asked_s = time.monotonic()
            assert get(self.address, "/health").startswith(b'{"status":"ok"')
            self.health_s.append(time.monotonic() - asked_s)
            if asked_s >= next_memory_s:
                next_memory_s = asked_s + _MEMORY_EVERY_S
                self.memory.append((asked_s - began_s, self._memory()))

    def _memory(self) -> Memory:
        status = Path(f"/proc/{self.pid}/status")
        lines = status.read_text().splitlines() if status.exists() else []
        anonymous = [1024.0 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:")]
        return Memory(
            resident_bytes=figures(self.address)["process_resident_memory_bytes"],
            anonymous_bytes=anonymous[0] if anonymous else None,
        )


def get(address: Address, path: str) -> bytes:
    """One GET on a connection of its own."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().read()


def figures(address: Address) -> dict[str, float]:
    """The figures of /metrics that are looked at; pages as pages_free, pages_held and pages_cached."""
    pages = "deepdraft:kv_pool_pages"
    running = "deepdraft:num_requests_running"
    names = frozenset({"process_resident_memory_bytes", "deepdraft:num_preemptions_total", running, pages})
    page = metrics_page(get(address, "/metrics").decode(), names)
    found = {name: page.total(name) or 0.0 for name in names - {pages}}
    return found | {f"pages_{state}": page.total(pages, state=state) or 0.0 for state in ("free", "held", "cached")}


def slope_bytes_min(memory: list[tuple[float, float]]) -> float:
    """Growth of memory in bytes a minute: the least-squares line through the second half of the samples."""
    later = memory[len(memory) // 2 :]
    if len(later) < 2:
        return 0.0
    mean_at = sum(at for at, _ in later) / len(later)
    mean = sum(value for _, value in later) / len(later)
    spread = sum((at - mean_at) ** 2 for at, _ in later)
    return 60 * sum((at - mean_at) * (value - mean) for at, value in later) / spread


def by_minute(memory: list[tuple[float, Memory]]) -> tuple[Memory, ...]:
    """The first sample of each minute."""
    firsts: dict[int, Memory] = {}
    for at_s, one in memory:
        firsts.setdefault(int(at_s / _MINUTE_S), one)
    return tuple(firsts.values())
