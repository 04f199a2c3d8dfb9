"""`deepdraft simulate`: a server of known truth."""

from __future__ import annotations

import argparse
from typing import Any


def add_command(commands: Any) -> None:
    """Add `simulate` to the command line."""
    parser = commands.add_parser(
        "simulate",
        help="run a server of known truth",
        # Not wrapped by argparse, since the examples below it must not be.
        description="Runs an OpenAI-compatible server that obeys a stated physics, in the dialect of an\n"
        "engine, with every known confound on a switch: to prove a measuring client, ours\n"
        "or another, against a known truth. GET /_truth tells what really happened.",
    )

    def fill() -> None:
        from deepdraft.simulate.options import add_arguments

        add_arguments(parser)

    parser.fill = fill
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from deepdraft.simulate import options

    return options.run(namespace)
