"""What a server tells beside its answers (counters, gauges, its log), and what that says of the drafts it accepted.

Reads; nothing here makes the server generate. Which of several sources is believed: `acceptance_choice`.
"""

from __future__ import annotations

from typing import ClassVar

from deepdraft.adapters import log
from deepdraft.adapters.acceptance import of_counters
from deepdraft.adapters.acceptance_choice import best, others_ran, with_steps_from
from deepdraft.adapters.counter import CounterMap, reading
from deepdraft.adapters.known_server import KnownServer, Setup
from deepdraft.adapters.prometheus import MetricsPage
from deepdraft.adapters.server import Server
from deepdraft.records import Acceptance, Capabilities, RequestTrace, ServerReading


class WatchedServer(KnownServer):
    """A server whose readings are taken around requests. Without an engine's own words it tells nothing."""

    counter_map: ClassVar[CounterMap | None] = None
    metrics_path: ClassVar[str] = "/metrics"

    def __init__(self, server: Server, capabilities: Capabilities, setup: Setup) -> None:
        super().__init__(server, capabilities, setup)
        self._tally = None if setup.server_log is None else log.LogTally(self.engine, setup.server_log)

    async def reading(self, at_s: float) -> ServerReading | None:
        """Load and counters now; None where the server offers nothing. `at_s`: seconds since the sweep began."""
        page = await self.metrics()
        found = None
        if page is not None and self.counter_map is not None:
            found = reading(page, self.counter_map, at_s, self.metrics_path)
        return found if self._tally is None else self._tally.added_to(found, at_s)

    async def metrics(self, *, limit_s: float = 10.0) -> MetricsPage | None:
        """The server's metrics page; None when there is none, or it did not come in time."""
        if self.counter_map is None or self._capabilities.has_counters == "no":
            return None
        reply = await self._server.try_get(self.metrics_path, limit_s=limit_s)
        if reply is None or reply.status != 200 or reply.json is not None:
            return None
        return self.counter_map.page(reply.text)

    def acceptance(
        self,
        trace: RequestTrace,
        before: ServerReading | None = None,
        after: ServerReading | None = None,
        *,
        is_alone: bool,
    ) -> Acceptance | None:
        """Speculation's counts for one request, from the best source there is; None when nothing tells.

        before, after: readings around the request. is_alone: we sent nothing else in between; only then, and when the
        readings show no other client's requests, do counters, log lines and gauges tell of this one.
        """
        stated = self.stated_acceptance(trace)
        if not is_alone or after is None or others_ran(trace, before, after):
            return best([stated])
        counted, *others = self._said_between(before, after)
        if stated is not None:
            stated = with_steps_from(stated, counted)
        return best([stated, counted, *others])

    def acceptance_between(self, before: ServerReading | None, after: ServerReading | None) -> Acceptance | None:
        """Speculation's counts of everything the server ran between two readings; None when nothing tells."""
        return None if after is None else best(self._said_between(before, after))

    def _said_between(self, before: ServerReading | None, after: ServerReading) -> tuple[Acceptance | None, ...]:
        """What the counters, the log and the gauges say, in the order in which they are believed."""
        path = self._setup.server_log
        return (
            None if before is None else of_counters(before, after),
            None if path is None else log.acceptance_between(self.engine, path, before, after),
            self._gauge_acceptance(before, after),
        )

    def stated_acceptance(self, trace: RequestTrace) -> Acceptance | None:
        """What the answer itself states."""
        return None

    def _gauge_acceptance(self, before: ServerReading | None, after: ServerReading) -> Acceptance | None:
        return None

    def cached_tokens_reported(self, trace: RequestTrace) -> bool:
        """Whether the answer says how much of its prompt came from a cache."""
        return trace.usage is not None and trace.usage.cached_tokens is not None
