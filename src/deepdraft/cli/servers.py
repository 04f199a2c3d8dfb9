"""`deepdraft servers URL`: what the adapter found there."""

from __future__ import annotations

import argparse
import json
import textwrap
from typing import Any

from deepdraft.cli.connection import Access, access, add_connection_flags, extra_body
from deepdraft.cli.output import write_out
from deepdraft.errors import DeepdraftError
from deepdraft.records import Capabilities


def add_command(commands: Any) -> None:
    """Add `servers` to the command line."""
    parser = commands.add_parser(
        "servers",
        help="say what a server is and can tell",
        description="Asks a server what it is: engine, version, model, limits, KV pool, how a request can be made "
        "cold, and which figures it reports. What it does not tell is printed as unknown. Sends a few tiny requests.",
    )
    parser.add_argument("url", metavar="URL", help="the server, e.g. http://localhost:8000 or .../prefix/v1")
    parser.add_argument("--json", action="store_true", help="as JSON, with the server's effective settings")
    add_connection_flags(parser)
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Print the server's capabilities."""
    import asyncio

    from deepdraft.bench.secret import Secrets

    entry = access(namespace)
    hidden = Secrets(entry.headers, entry.admin_headers)
    try:
        found = hidden.hidden_in(asyncio.run(_capabilities(namespace, entry)))
    except DeepdraftError as error:
        error.message = hidden.hidden(error.message)
        raise
    if namespace.json:
        import msgspec

        write_out(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
    else:
        write_out(capabilities_text(found) + "\n")
    return 0


async def _capabilities(namespace: argparse.Namespace, entry: Access) -> Capabilities:
    from deepdraft.adapters.detect import detect
    from deepdraft.transport.client import Client
    from deepdraft.transport.endpoint import endpoint

    async with Client(endpoint(namespace.url), tls=entry.tls, headers=entry.headers) as client:
        adapter = await detect(
            client,
            engine=namespace.engine or "auto",
            model=namespace.model,
            endpoint=namespace.endpoint or "auto",
            server_log=namespace.server_log,
            admin_headers=entry.admin_headers,
            extra_body=extra_body(namespace),
        )
        await adapter.settle()
        return adapter.capabilities


def capabilities_text(found: Capabilities) -> str:
    """Two columns, at most 80 characters wide for the usual server."""

    def tokens(value: int | None) -> str:
        return "unknown" if value is None else f"{value:,} tokens"

    limits = [value for value in (found.max_context_len, found.kv_pool_tokens, found.max_prompt_len) if value]
    rows = [
        ("engine", f"{found.engine} {found.version or '(version unknown)'} ({found.detected_by})"),
        ("model", found.model or "unknown"),
        ("context limit", tokens(found.max_context_len)),
        ("KV pool", tokens(found.kv_pool_tokens) + (f", page size {found.page_size}" if found.page_size else "")),
        ("hard limit", tokens(min(limits) if limits else None)),
        ("slots", "unknown" if found.num_slots is None else str(found.num_slots)),
        ("endpoints", ", ".join(found.endpoints) or "unknown"),
        ("prefix cache", found.prefix_cache),
        ("made cold by", ", ".join(("unique head", *found.cold_means))),
        ("reports cached tokens", found.reports_cached_tokens),
        ("speculation", found.speculation + (f" ({found.speculation_method})" if found.speculation_method else "")),
        ("reports acceptance", found.reports_acceptance),
        ("continuous usage", found.continuous_usage),
        ("token-id prompts", found.token_id_prompts),
        ("ignores EOS on demand", found.ignores_eos),
        ("tokenize endpoint", found.tokenizes),
        ("counters", found.has_counters),
    ]
    width = max(len(name) for name, _ in rows)
    if found.settings:
        rows.append(("settings", f"{len(found.settings)} known (--json prints them)"))
        known = {name: found.settings.get(name) for name in _SHOWN_SETTINGS}
        rows += [("", f"{name} = {json.dumps(value)}") for name, value in known.items() if _is_plain(value)]
    rows += [("note", doubt) for doubt in found.doubts]
    lines = []
    for name, value in rows:
        lines += textwrap.wrap(
            f"{name:<{width}}  {value}",
            _WIDTH,
            subsequent_indent=" " * (width + 2),
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def _is_plain(value: Any) -> bool:
    return value is not None and not isinstance(value, dict | list)


_WIDTH = 80
_SHOWN_SETTINGS = (
    "mem_fraction_static",
    "gpu_memory_utilization",
    "chunked_prefill_size",
    "max_running_requests",
    "kv_cache_dtype",
    "attention_backend",
    "tp_size",
    "speculative_algorithm",
    "speculative_num_draft_tokens",
    "enable_prefix_caching",
    "disable_radix_cache",
)
