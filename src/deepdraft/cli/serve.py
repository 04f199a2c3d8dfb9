"""`deepdraft serve`: our own inference stack behind the OpenAI API."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

from deepdraft.cli.drafting import NONE, add_drafting_flags, check_drafting
from deepdraft.cli.value import count, count_or_none, tokens, whole
from deepdraft.errors import UsageError

if TYPE_CHECKING:
    from deepdraft.infer.server.settings import ServeSettings

KEY_VARIABLE = "DEEPDRAFT_API_KEY"
_NEEDED = ("jinja2", "numpy", "prometheus_client", "safetensors", "starlette", "tokenizers", "torch", "uvicorn")
_INSTALL_HINT = (
    'run: pip install "deepdraft[serve]"; for the CPU build of torch first: '
    "pip install torch --index-url https://download.pytorch.org/whl/cpu"
)


def add_command(commands: Any) -> None:
    """Add `serve` to the command line."""
    parser = commands.add_parser(
        "serve",
        help="serve a model over the OpenAI API",
        description="Serves a model of the form deepseek_v3 (Kimi K2.x), llama or qwen3 over the OpenAI API. Without "
        "--model it is the small one that ships with the package. Once it serves, standard output has one line: "
        "url http://HOST:PORT.",
    )
    parser.fill = lambda: _add_arguments(parser)
    parser.set_defaults(run=run)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    from deepdraft.infer.server import settings as defaults
    from deepdraft.infer.settings import DEFAULT_CHUNK_LEN, DEFAULT_MAX_RUNNING_REQUESTS, DEFAULT_PAGE_SIZE

    model = parser.add_argument_group("the model")
    model.add_argument(
        "--model", default="embedded", metavar="PATH", help="embedded, a folder or a GGUF file (embedded)"
    )
    model.add_argument(
        "--served-model-name", action="append", metavar="NAME", help="its name in requests; may be repeated (its own)"
    )
    model.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help="to compute in (float32)")
    model.add_argument(
        "--attention-backend",
        choices=("auto", "native", "torch", "reference"),
        help="reference is slow and exact (auto: native where it was built, else torch)",
    )
    model.add_argument("--num-threads", type=count, metavar="N", help="of the forward pass (all cores but one)")

    room = parser.add_argument_group("limits and memory")
    room.add_argument(
        "--max-context-len",
        "--context-len",
        type=tokens,
        metavar="TOKENS",
        help="prompt and output of one request, like 32k (what the model is made for)",
    )
    room.add_argument("--kv-pool-tokens", type=tokens, metavar="TOKENS", help="room for all requests together")
    room.add_argument(
        "--mem-fraction",
        type=float,
        metavar="F",
        help="or: the pool's share of the memory that is free after the weights (0.25, at most 4 full contexts)",
    )
    room.add_argument("--page-size", type=count, metavar="N", help=f"tokens of a page ({DEFAULT_PAGE_SIZE})")
    room.add_argument(
        "--chunked-prefill-size",
        "--chunk-len",
        dest="chunk_len",
        type=tokens,
        metavar="TOKENS",
        help=f"prompt tokens of one pass; a running request waits that long ({DEFAULT_CHUNK_LEN})",
    )
    room.add_argument(
        "--max-running-requests", type=count, metavar="N", help=f"in one batch ({DEFAULT_MAX_RUNNING_REQUESTS})"
    )
    room.add_argument(
        "--max-queued-requests",
        type=count_or_none,
        default=defaults.DEFAULT_MAX_QUEUED_REQUESTS,
        metavar="N",
        help="that may wait beside them; more get 503 (%(default)s)",
    )
    room.add_argument("--no-radix-cache", action="store_true", help="never reuse the KV of a common prefix")

    room.add_argument(
        "--defragment", action="store_true", help="between steps, put a request's scattered pages side by side"
    )

    add_drafting_flags(parser.add_argument_group("drafting"))

    door = parser.add_argument_group("the address")
    door.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    door.add_argument("--port", type=_port, default=defaults.DEFAULT_PORT, help="0: any free one (%(default)s)")
    door.add_argument(
        "--api-key", metavar="KEY", help=f"that requests must bring; better in the variable {KEY_VARIABLE}"
    )
    door.add_argument(
        "--max-body-bytes",
        type=count,
        default=defaults.DEFAULT_MAX_BODY_BYTES,
        metavar="N",
        help="larger requests get 413 (%(default)s)",
    )
    door.add_argument(
        "--drain-timeout",
        type=_seconds,
        default=defaults.DEFAULT_DRAIN_TIMEOUT_S,
        metavar="S",
        help="how long running requests may go on after SIGTERM (%(default)g)",
    )

    parser.add_argument("--check", action="store_true", help="check the engine's laws after every step (slow)")
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="warning", help="(%(default)s)"
    )
    parser.add_argument("--parent-stdin", action="store_true", help=argparse.SUPPRESS)


def run(namespace: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C. Raises UsageError; EngineDied when the engine ended by an error."""
    settings = settings_of(namespace)
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"serving needs packages that are not installed: {', '.join(missing)}", hint=_INSTALL_HINT)
    from deepdraft.infer.server.run import introduction, leave_with_stdin, listening_socket, serve

    if settings.ends_with_stdin:
        leave_with_stdin()
    # Bound before the model is loaded, so that an address in use is told at once.
    with listening_socket(settings.host, settings.port) as bound:
        from deepdraft.infer.server.load import load_service

        service = load_service(settings)
        print(introduction(service.facts.settings), file=sys.stderr, flush=True)
        if settings.api_key is None and not bound.getsockname()[0].startswith(("127.", "::1")):
            print(f"note: no API key: whoever reaches {settings.host} can use it", file=sys.stderr, flush=True)
        serve(service, settings, bound)
    if service.worker.failure is not None:
        raise service.worker.failure
    return 0


def settings_of(namespace: argparse.Namespace) -> ServeSettings:
    """The flags as settings; the key from the environment where no flag has it. Raises UsageError."""
    from deepdraft.infer.server.settings import ServeSettings

    if namespace.mem_fraction is not None and not 0 < namespace.mem_fraction <= 1:
        raise UsageError(f"--mem-fraction must be above 0 and at most 1: {namespace.mem_fraction:g}")
    if namespace.mem_fraction is not None and namespace.kv_pool_tokens is not None:
        raise UsageError("the KV pool is stated twice", hint="use either --mem-fraction or --kv-pool-tokens")
    check_drafting(namespace)
    return ServeSettings(
        model=namespace.model,
        served_model_names=tuple(namespace.served_model_name or ()),
        host=namespace.host,
        port=namespace.port,
        max_context_len=namespace.max_context_len,
        kv_pool_tokens=namespace.kv_pool_tokens,
        mem_fraction=namespace.mem_fraction,
        page_size=namespace.page_size,
        chunk_len=namespace.chunk_len,
        max_running_requests=namespace.max_running_requests,
        max_queued_requests=namespace.max_queued_requests,
        attention_backend=namespace.attention_backend,
        dtype=namespace.dtype,
        num_threads=namespace.num_threads,
        drafter=namespace.drafter or NONE,
        tree_budget=namespace.tree_budget,
        tree_top_k=namespace.tree_top_k,
        is_spine_first=bool(namespace.is_spine_first),
        speculation=namespace.speculation,
        draft_window=namespace.draft_window,
        draft_sink=namespace.draft_sink,
        simulate_acceptance_len=namespace.simulate_acceptance_len,
        defragment=namespace.defragment,
        has_radix_cache=not namespace.no_radix_cache,
        is_checked=namespace.check,
        api_key=namespace.api_key or os.environ.get(KEY_VARIABLE) or None,
        max_body_bytes=namespace.max_body_bytes,
        drain_timeout_s=namespace.drain_timeout,
        log_level=namespace.log_level,
        ends_with_stdin=namespace.parent_stdin,
    )


def _port(text: str) -> int:
    return whole(text, 0, 65_535)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"not a number of seconds: {text!r}")
    return value
