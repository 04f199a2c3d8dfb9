"""Part `rate` as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from .page import doubted, row, rule
from .rate import MAX_LAG_S, Kept


def rate_section(rates: Sequence[Kept], taken: str) -> str:
    """Part `rate`."""
    kept = [rate.events_s for rate in rates if rate.is_kept]
    guarded = [rate.events_s for rate in rates if rate.guard == "verified"]
    best = f"{max(kept):,.0f} events/s" if kept else "none of these loads"
    best_guarded = f"up to {max(guarded):,.0f} events/s" if guarded else "at none of these loads"
    return "\n".join(
        [
            "## Rate",
            "",
            taken,
            "",
            f"The largest rate our client kept up with, 99 % of its stamps within {MAX_LAG_S * 1e3:.0f} ms of the "
            f"server's own: **{best}**. Its guard `client_lag` was content {best_guarded}; it looks at the worst "
            "moment rather than at 99 %. A load that was not kept up with was tried again; the better try counts. "
            "The server runs on the other core: where it writes late, or its core is full, it is the bound and not "
            "the client.",
            "",
            row(
                [
                    "streams",
                    "events/s asked",
                    "written",
                    "client's lag ms, median",
                    "p99",
                    "guard client_lag",
                    "client, of a core",
                    "server, of a core",
                    "server late ms, p99",
                ]
            ),
            rule(9),
            *(
                row(
                    [
                        str(rate.num_streams),
                        f"{rate.asked_events_s:,.0f}",
                        f"{rate.events_s:,.0f}",
                        f"{rate.lag_median_s * 1e3:.2f}",
                        doubted(f"{rate.lag_p99_s * 1e3:.2f}", not rate.is_kept),
                        rate.guard,
                        f"{rate.client_cpu_frac:.0%}",
                        f"{rate.server_cpu_frac:.0%}",
                        f"{rate.server_late_p99_s * 1e3:.1f}",
                    ]
                )
                for rate in rates
            ),
        ]
    )
