"""`deepdraft selftest`: our own errors on this machine, beside the targets."""

from __future__ import annotations

import argparse
from typing import Any


def add_command(commands: Any) -> None:
    """Add `selftest` to the command line."""
    parser = commands.add_parser(
        "selftest",
        help="prove the client on this machine against a server of known truth",
        description="Starts the server of known truth, runs the client through every pattern of events and every "
        "fault, and prints our errors beside the targets. Ends with 7 when a target was missed: then figures of this "
        "size can't be trusted on this machine.",
    )
    parser.add_argument("--only", metavar="NAME", action="append", help="run only these checks; may be repeated")
    parser.add_argument("--list", action="store_true", help="name the checks")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--repeats", type=int, default=4, metavar="N", help="requests of each timing check (4)")
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Run the checks and print them."""
    from deepdraft.cli.main import EXIT_TARGET_MISSED
    from deepdraft.selftest import run_selftest

    is_met = run_selftest(
        only=tuple(namespace.only or ()),
        is_list=namespace.list,
        is_json=namespace.json,
        num_repeats=namespace.repeats,
    )
    return 0 if is_met else EXIT_TARGET_MISSED
