"""The server that a spec names: somebody's URL, or an embedded one that is started for it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from deepdraft.records import SweepSpec


@contextlib.contextmanager
def measured_server(spec: SweepSpec, *, is_quiet: bool) -> Iterator[str]:
    """The URL to measure; an embedded server runs until the block is left. Raises UsageError or ServerError."""
    from deepdraft.bench.plan import decode_len
    from deepdraft.embedded import embedded_engine, running

    engine = embedded_engine(spec.url)
    if engine is None:
        yield spec.url
        return
    longest = max(length + decode_len(spec, length) + 1 for length in spec.context_lens)
    if not is_quiet:
        words = "".join(f" {word}" for word in spec.embedded_flags)
        print(f"starting the embedded server ({engine.label}{words}) ...", file=sys.stderr)
    num_slots = max(spec.concurrencies)
    with running(engine(context_len=longest, num_slots=num_slots, flags=spec.embedded_flags)) as server:
        yield server.url
