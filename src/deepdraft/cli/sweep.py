"""`deepdraft sweep`: measure a server across context lengths."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepdraft.cli.connection import access, add_connection_flags, recorded_command_line
from deepdraft.cli.drafting import add_drafting_flags
from deepdraft.cli.measured_server import measured_server
from deepdraft.cli.output import write_out
from deepdraft.cli.results_path import add_resume_flag, results_path
from deepdraft.cli.sweep_spec import asked_spec, resumed_spec
from deepdraft.records import Run, SweepSpec

if TYPE_CHECKING:
    from deepdraft.cli.interruption import Interruption


def add_command(commands: Any) -> None:
    """Add `sweep` to the command line. Flags that describe the sweep default to None: not said."""
    parser = commands.add_parser(
        "sweep",
        help="measure a server across context lengths",
        description="Sends prompts of exact token counts to a server, streams the answers, and records every event "
        "as it arrives. Each point is checked for known confounds (a prefix cache that answers, an answer that "
        "ends early, a client that lags ...). Results go to a file, the table to standard output. Ctrl-C keeps what "
        "is measured.",
        epilog="Example: deepdraft sweep http://localhost:30000 --context-len 1k,16k,64k,128k --out run.jsonl",
    )
    parser.add_argument(
        "url", nargs="?", metavar="URL", help="the server, e.g. http://localhost:8000 or .../prefix/v1"
    )
    parser.add_argument(
        "--embedded",
        nargs="?",
        const="deepdraft",
        metavar="ENGINE",
        help="measure a small real model on a real server started on this machine: deepdraft (our own stack and "
        "model) or llamacpp (deepdraft)",
    )
    add_drafting_flags(parser.add_argument_group("how the embedded server drafts"))
    add_measure_flags(parser.add_argument_group("what is measured"))
    add_connection_flags(parser)
    add_patience_flags(parser.add_argument_group("patience"))
    _add_results(parser.add_argument_group("results"))
    parser.set_defaults(run=run)


def add_measure_flags(group: Any) -> None:
    """The flags that say what is measured; shared with `compare --run`."""
    group.add_argument(
        "--context-len", metavar="LIST", help="prompt tokens, template included: 1k,11k,32k or 1k-128k*2 or 8k-32k+8k"
    )
    group.add_argument(
        "--decode-len",
        type=_positive,
        metavar="N",
        help="tokens to generate (64); two-point: beyond the first (16, and 8 from 100k on)",
    )
    group.add_argument("--repeats", dest="num_repeats", type=_positive, metavar="N", help="repeats of each point (3)")
    group.add_argument("--concurrency", metavar="LIST", help="requests in flight: 1,2,4 (1)")
    group.add_argument(
        "--requests",
        dest="num_requests",
        type=_positive,
        metavar="N",
        help="requests of one repeat (as many as are in flight)",
    )
    group.add_argument(
        "--arrival",
        metavar="KIND",
        help="closed: the next when one ends; or open loop, poisson:RATE or constant:RATE in requests a second: "
        "whatever is in flight, and latency counts from the schedule (closed)",
    )
    group.add_argument(
        "--method",
        choices=("streaming", "two-point"),
        help="streaming: one request, timed by its events; two-point: the same prompt with 1 and 1 + N tokens "
        "(streaming)",
    )
    group.add_argument("--text", metavar="KIND", help="prose, code, random, repeat (optimistic) or file:PATH (prose)")
    group.add_argument(
        "--prompt-form",
        choices=("auto", "text", "ids"),
        help="send text or token ids (auto: ids where the route takes them)",
    )
    group.add_argument(
        "--needle",
        dest="needle_depth",
        nargs="?",
        type=_fraction,
        const=0.5,
        metavar="DEPTH",
        help="capability check: hide a fact at this fraction of the prompt and look for it in the answer (0.5)",
    )
    group.add_argument(
        "--warmups", dest="num_warmups", type=_natural, metavar="N", help="trials before, kept apart (1)"
    )
    group.add_argument("--seed", type=_whole, metavar="N", help="of texts and arrivals (0)")
    group.add_argument("--temperature", type=_amount, metavar="T", help="of the server's sampling (0)")
    group.add_argument("--tokenizer", metavar="PATH", help="tokenizer.json, where the server can't count")
    group.add_argument(
        "--keep-cache",
        action="store_true",
        default=None,
        help="leave the prefix cache alone and send each prompt again: to study hits",
    )
    group.add_argument("--device", metavar="NAME", help="noted in the results: what the server runs on")


def add_patience_flags(group: Any) -> None:
    """The flags that say how long to wait; shared with `compare --run`."""
    group.add_argument(
        "--first-token-limit",
        type=_limit,
        metavar="S",
        help="seconds to the first token (120 and more: grows with the context)",
    )
    group.add_argument(
        "--stall-limit", type=_limit, metavar="S", help="seconds between tokens (60 and more: grows with the context)"
    )
    group.add_argument("--request-limit", type=_limit, metavar="S", help="seconds for a whole request (none)")
    group.add_argument(
        "--wait-server",
        type=_amount,
        metavar="S",
        help="seconds to wait for a server that stopped answering (20), is not there yet (0), or says it is loading "
        "(900)",
    )
    group.add_argument(
        "--retries", type=_natural, metavar="N", help="of a request that failed before its first token (1)"
    )


def _add_results(group: Any) -> None:
    group.add_argument("--out", type=Path, metavar="FILE", help="results file (deepdraft-<time>.jsonl)")
    add_resume_flag(group, "FILE", "go on with a results file where it stopped; alone, with the file of --out")
    group.add_argument("--json", action="store_true", help="print the results as JSON instead of a table")
    group.add_argument("--strict", action="store_true", help="exit with 6 when a guard was violated")
    group.add_argument("--quiet", action="store_true", help="no progress on standard error")


def run(namespace: argparse.Namespace) -> int:
    """Measure, print, and return the exit code."""
    from deepdraft.cli.interruption import interruption
    from deepdraft.records.file import read_run

    path, is_resumed = results_path(namespace, usage="sweep URL", metavar="FILE", default_suffix=".jsonl")
    if not is_resumed:
        spec = asked_spec(namespace)
    else:
        earlier = read_run(path)
        spec = resumed_spec(namespace, earlier.header)
        if earlier.is_complete:
            print(f"{path} is complete: nothing to resume", file=sys.stderr)
            return _print(namespace, path, earlier)
    with interruption() as signals, measured_server(spec, is_quiet=namespace.quiet) as url:
        return _measure(namespace, spec, url, path, signals, is_resumed=is_resumed)


def _measure(
    namespace: argparse.Namespace, spec: SweepSpec, url: str, path: Path, signals: Interruption, *, is_resumed: bool
) -> int:
    from deepdraft.bench.progress import Progress
    from deepdraft.bench.sweep import sweep
    from deepdraft.cli.main import report_error

    entry = access(namespace)
    outcome = signals.run(
        sweep(
            spec,
            url=url,
            path=path,
            is_resumed=is_resumed,
            headers=entry.headers,
            admin_headers=entry.admin_headers,
            tls=entry.tls,
            progress=Progress(num_trials=0, stream=None if namespace.quiet else sys.stderr),
            command_line=recorded_command_line(namespace.words),
        )
    )
    code = 0
    if outcome.run is not None:
        code = _print(namespace, path, outcome.run, num_unsaved=outcome.num_unsaved)
    if outcome.problem is None:
        return code
    if outcome.problem.hint is None and outcome.run is not None:
        outcome.problem.hint = f"what was measured is kept; go on with --resume {path}"
    return report_error(outcome.problem)


def _print(namespace: argparse.Namespace, path: Path, results: Run, *, num_unsaved: int = 0) -> int:
    import json

    from deepdraft.cli.main import EXIT_GUARD_VIOLATED
    from deepdraft.report import results_object, results_table

    facts = results_object(results)
    if namespace.json:
        write_out(json.dumps(facts, indent=2) + "\n")
    else:
        missing = f" ({num_unsaved} of its lines could not be written)" if num_unsaved else ""
        write_out(f"{results_table(results)}\nresults in {path}{missing}\n")
    for loss in results.damage:
        print(f"deepdraft: {path}: {loss}", file=sys.stderr)
    is_flawed = bool(facts["refusals"]) or any(point["num_failed"] for point in facts["points"])
    is_violated = any(guard["state"] == "violated" for point in facts["points"] for guard in point["guards"])
    if is_flawed:
        return 1
    return EXIT_GUARD_VIOLATED if namespace.strict and is_violated else 0


# --- values of flags


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a whole number: {text!r}") from None


def _natural(text: str) -> int:
    value = _whole(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def _positive(text: str) -> int:
    value = _whole(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def _amount(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a number: {text!r}") from None
    if not (value >= 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError("must be 0 or more")
    return value


def _limit(text: str) -> float:
    value = _amount(text)
    if not value:
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def _fraction(text: str) -> float:
    value = _amount(text)
    if value > 1:
        raise argparse.ArgumentTypeError("must be between 0 and 1")
    return value
