"""`deepdraft sweep`: measure a server across context lengths."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deepdraft.cli.connection import access, add_connection_flags, extra_body
from deepdraft.errors import UsageError
from deepdraft.records import Limits, SweepSpec
from deepdraft.units import token_counts

EMBEDDED_URL = "embedded"
_EMBEDDED_LENS = "512,1k,2k,4k"


def add_command(commands: Any) -> None:
    """Add `sweep` to the command line."""
    parser = commands.add_parser(
        "sweep",
        help="measure a server across context lengths",
        description="Sends prompts of exact token counts to a server, streams the answers, and records every event "
        "as it arrives. Each point is checked for known confounds (a prefix cache that answers, an answer that "
        "ends early, a client that lags ...). Results go to a file, the table to standard output.",
        epilog="Example: deepdraft sweep http://localhost:30000 --context-len 1k,16k,64k,128k --out run.jsonl",
    )
    parser.add_argument(
        "url", nargs="?", metavar="URL", help="the server, e.g. http://localhost:8000 or .../prefix/v1"
    )
    parser.add_argument(
        "--embedded", action="store_true", help="measure a small real model on a real server started on this machine"
    )

    what = parser.add_argument_group("what is measured")
    what.add_argument(
        "--context-len", metavar="LIST", help="prompt tokens, template included: 1k,11k,32k or 1k-128k*2 or 8k-32k+8k"
    )
    what.add_argument("--decode-len", type=_positive, metavar="N", help="tokens to generate (64; two-point: 16 or 8)")
    what.add_argument("--repeats", type=_positive, metavar="N", default=3, help="repeats of each point (3)")
    what.add_argument("--concurrency", metavar="LIST", default="1", help="requests in flight: 1,2,4 (1)")
    what.add_argument(
        "--requests", type=_positive, metavar="N", help="requests of one repeat (as many as are in flight)"
    )
    what.add_argument(
        "--arrival",
        default="closed",
        metavar="KIND",
        help="closed, or open loop: poisson:RATE, constant:RATE (per s)",
    )
    what.add_argument("--method", choices=("streaming", "two-point"), default="streaming", help="how (streaming)")
    what.add_argument(
        "--text",
        default="prose",
        metavar="KIND",
        help="prose, code, random, repeat (optimistic) or file:PATH (prose)",
    )
    what.add_argument(
        "--prompt-form",
        choices=("auto", "text", "ids"),
        default="auto",
        help="send text or token ids (auto: ids where the route takes them)",
    )
    what.add_argument(
        "--needle",
        nargs="?",
        type=_fraction,
        const=0.5,
        metavar="DEPTH",
        help="capability check: hide a fact at this fraction of the prompt and look for it in the answer (0.5)",
    )
    what.add_argument("--warmups", type=_natural, metavar="N", default=1, help="requests before, kept apart (1)")
    what.add_argument("--seed", type=int, default=0, help="of texts and arrivals (0)")
    what.add_argument("--temperature", type=float, default=0.0, help="of the server's sampling (0)")
    what.add_argument("--tokenizer", metavar="PATH", help="tokenizer.json, where the server can't count")
    what.add_argument(
        "--keep-cache",
        action="store_true",
        help="leave the prefix cache alone and send each prompt again: to study hits",
    )
    what.add_argument("--device", metavar="NAME", help="noted in the results: what the server runs on")

    add_connection_flags(parser)

    limits = parser.add_argument_group("patience (seconds)")
    limits.add_argument("--first-token-limit", type=_seconds, metavar="S", help="(grows with the context)")
    limits.add_argument("--stall-limit", type=_seconds, metavar="S", help="between tokens (grows with the context)")
    limits.add_argument("--request-limit", type=_seconds, metavar="S", help="for a whole request (none)")
    limits.add_argument(
        "--wait-server",
        type=_seconds,
        metavar="S",
        help="for a server that stopped answering (20), or is not there yet (0)",
    )
    limits.add_argument(
        "--retries", type=_natural, metavar="N", default=1, help="of a request that failed before its first token (1)"
    )

    results = parser.add_argument_group("results")
    results.add_argument("--out", type=Path, metavar="FILE", help="results file (deepdraft-<time>.jsonl)")
    results.add_argument(
        "--resume",
        nargs="?",
        const=True,
        metavar="FILE",
        help="go on with a results file where it stopped; alone, with the file of --out",
    )
    results.add_argument("--json", action="store_true", help="print the results as JSON instead of a table")
    results.add_argument("--strict", action="store_true", help="exit with 6 when a guard was violated")
    results.add_argument("--quiet", action="store_true", help="no progress on standard error")
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Measure, print, and return the exit code."""
    from deepdraft.records.file import read_run

    path, is_resumed = _results_path(namespace)
    earlier = read_run(path) if is_resumed else None
    if earlier is not None:
        spec = _resumed_spec(namespace, earlier.header.spec)
        if earlier.is_complete:
            print(f"{path} is complete: nothing to resume", file=sys.stderr)
            return _print(namespace, path, earlier)
    else:
        spec = _spec(namespace)
    with _server(spec, is_quiet=namespace.quiet) as url:
        return _measure(namespace, spec, url, path, is_resumed=is_resumed)


def _measure(namespace: argparse.Namespace, spec: SweepSpec, url: str, path: Path, *, is_resumed: bool) -> int:
    from deepdraft.bench.progress import Progress
    from deepdraft.bench.sweep import sweep
    from deepdraft.records.redact import redacted_command_line
    from deepdraft.transport.tls import TlsOptions

    entry = access(namespace)
    outcome = asyncio.run(
        sweep(
            spec,
            url=url,
            path=path,
            is_resumed=is_resumed,
            headers=entry.headers,
            admin_headers=entry.admin_headers,
            tls=TlsOptions(
                ca_file=entry.ca_file,
                client_cert_file=entry.client_cert,
                client_key_file=entry.client_key,
                insecure=entry.is_insecure,
            ),
            progress=Progress(num_trials=0, stream=None if namespace.quiet else sys.stderr),
            command_line=redacted_command_line(["deepdraft", *sys.argv[1:]]),
        )
    )
    code = _print(namespace, path, outcome.run) if outcome.run is not None else 0
    if outcome.problem is None:
        return code
    print(f"deepdraft: {outcome.problem.message}", file=sys.stderr)
    hint = outcome.problem.hint
    if hint is None and outcome.run is not None:
        hint = f"what was measured is kept; go on with --resume {path}"
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    return outcome.problem.exit_code


def _print(namespace: argparse.Namespace, path: Path, results: Any) -> int:
    import json

    from deepdraft.cli.main import EXIT_GUARD_VIOLATED
    from deepdraft.report import results_object, results_table

    facts = results_object(results)
    if namespace.json:
        print(json.dumps(facts, indent=2))
    else:
        print(results_table(results))
        print(f"results in {path}")
    for loss in results.damage:
        print(f"deepdraft: {path}: {loss}", file=sys.stderr)
    is_flawed = bool(facts["refusals"]) or any(point["num_failed"] for point in facts["points"])
    is_violated = any(guard["state"] == "violated" for point in facts["points"] for guard in point["guards"])
    if is_flawed:
        return 1
    return EXIT_GUARD_VIOLATED if namespace.strict and is_violated else 0


def _results_path(namespace: argparse.Namespace) -> tuple[Path, bool]:
    """Where results go, and whether the file is to be continued."""
    if isinstance(namespace.resume, str):
        if "://" in namespace.resume:
            raise UsageError("--resume takes a results file", hint="write: deepdraft sweep URL ... --resume FILE")
        if namespace.out is not None and namespace.out != Path(namespace.resume):
            raise UsageError("--out and --resume name different files", hint="--resume FILE alone is enough")
        return Path(namespace.resume), True
    if namespace.resume:
        if namespace.out is None:
            raise UsageError("--resume needs a file", hint="write --resume FILE, or --out FILE --resume")
        if not namespace.out.exists():
            print(f"{namespace.out} does not exist yet: starting it", file=sys.stderr)
            return namespace.out, False
        return namespace.out, True
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return namespace.out or Path(f"deepdraft-{stamp}.jsonl"), False


def _spec(namespace: argparse.Namespace) -> SweepSpec:
    """The spec that the flags describe."""
    from deepdraft.bench import arrival
    from deepdraft.bench.text import text_source

    if namespace.embedded == bool(namespace.url):
        raise UsageError(
            "give the server's URL, or --embedded" if not namespace.url else "give a URL or --embedded, not both",
            hint="for example: deepdraft sweep http://localhost:8000 --context-len 1k,16k",
        )
    lens_text = namespace.context_len or (_EMBEDDED_LENS if namespace.embedded else None)
    if lens_text is None:
        raise UsageError("nothing to measure", hint="give --context-len, for example --context-len 1k,16k,128k")
    arrival.rate(namespace.arrival)
    text_source(namespace.text)
    return SweepSpec(
        url=EMBEDDED_URL if namespace.embedded else namespace.url,
        engine=namespace.engine,
        endpoint=namespace.endpoint,
        model=namespace.model,
        method=namespace.method,
        context_lens=token_counts(lens_text),
        decode_len=namespace.decode_len,
        num_repeats=namespace.repeats,
        concurrencies=token_counts(namespace.concurrency),
        num_requests=namespace.requests,
        arrival=namespace.arrival,
        text=namespace.text,
        prompt_form=namespace.prompt_form,
        needle_depth=namespace.needle,
        num_warmups=namespace.warmups,
        seed=namespace.seed,
        temperature=namespace.temperature,
        tokenizer=namespace.tokenizer,
        server_log=str(namespace.server_log) if namespace.server_log else None,
        device=namespace.device,
        extra_body=extra_body(namespace),
        keep_cache=namespace.keep_cache,
        limits=Limits(
            first_token_s=namespace.first_token_limit,
            stall_s=namespace.stall_limit,
            request_s=namespace.request_limit,
            server_wait_s=Limits().server_wait_s if namespace.wait_server is None else namespace.wait_server,
            start_wait_s=namespace.wait_server or 0.0,
            num_retries=namespace.retries,
        ),
    )


def _resumed_spec(namespace: argparse.Namespace, spec: SweepSpec) -> SweepSpec:
    """The file's own spec; flags given again must say the same.

    Raises UsageError when they ask for something else: the two halves would not be one sweep.
    """
    if not namespace.url and not namespace.embedded and namespace.context_len is None:
        return spec
    namespace.embedded = namespace.embedded or (not namespace.url and spec.url == EMBEDDED_URL)
    namespace.url = namespace.url or (None if namespace.embedded else spec.url)
    if namespace.context_len is None:
        namespace.context_len = ",".join(str(length) for length in spec.context_lens)
    asked, recorded = asdict(_spec(namespace)), asdict(spec)
    for name in ("limits", "server_log"):  # patience may change; what is measured may not
        asked.pop(name), recorded.pop(name)
    different = [name for name, value in asked.items() if value != recorded[name]]
    if different and different != ["url"]:
        names = ", ".join(name for name in different if name != "url")
        raise UsageError(
            f"the results file was made with other settings ({names})",
            hint="--resume FILE alone goes on with the settings of the file",
        )
    return _with_url(spec, asked["url"])


def _with_url(spec: SweepSpec, url: str) -> SweepSpec:
    import dataclasses

    return dataclasses.replace(spec, url=url)


@contextlib.contextmanager
def _server(spec: SweepSpec, *, is_quiet: bool) -> Iterator[str]:
    """The URL to measure; starts the embedded server when that is asked for."""
    if spec.url != EMBEDDED_URL:
        yield spec.url
        return
    from deepdraft.bench.plan import decode_len
    from deepdraft.embedded import EmbeddedSpec, running

    longest = max(length + decode_len(spec, length) + 1 for length in spec.context_lens)
    needed = EmbeddedSpec(context_len=-(-longest // 256) * 256, num_slots=max(spec.concurrencies))
    if not is_quiet:
        print("starting the embedded server (llama.cpp with SmolLM2-135M) ...", file=sys.stderr)
    with running(needed) as server:
        yield server.url


def _positive(text: str) -> int:
    value = _natural(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def _natural(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a whole number: {text!r}") from None
    if value < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a number of seconds: {text!r}") from None
    if not value >= 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a fraction: {text!r}") from None
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError("must be between 0 and 1")
    return value
