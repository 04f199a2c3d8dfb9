"""The command line: which parts to run, with which clients, and where the page goes."""

from __future__ import annotations

import argparse
import datetime
import sys
from pathlib import Path

from .accuracy import accuracies, kept_cache
from .client import Client, Deepdraft, Floor, peers
from .cost import costs
from .cost_section import cost_section
from .errors_section import errors_section
from .machine import machine
from .page import write
from .rate import rates
from .rate_section import rate_section
from .trial import installed

PARTS = ("cost", "errors", "rate")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "experiments" / "client_cost.md"


def main() -> int:
    """Run the parts and print their sections. Returns the exit code: 2 without any peer to compare with."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers",
        description="Our client beside its peers on one server of known truth: cost, errors, largest rate kept.",
    )
    parser.add_argument("--venvs", type=Path, required=True, help="the folder that setup.sh filled")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part; may be repeated (all)")
    parser.add_argument("--rounds", type=int, default=3, help="of part cost (3)")
    parser.add_argument(
        "--only", metavar="TEXT", action="append", help="only peers whose name holds this; may be repeated (all)"
    )
    parser.add_argument("--write", action="store_true", help=f"put the sections into {PAGE.name}")
    options = parser.parse_args()
    found = [
        (client, version)
        for client, version in installed(peers(options.venvs.resolve(), options.venvs.resolve() / "tiny-llama"))
        if not options.only or any(text in client.name for text in options.only)
    ]
    if not found:
        print(f"no peer in {options.venvs}: run benchmarks/peers/setup.sh {options.venvs}", file=sys.stderr)
        return 2
    clients: list[Client] = [Deepdraft(), *(client for client, _ in found)]
    versions = ", ".join(
        f"{client.name} {version}" for client, version in [(Deepdraft(), Deepdraft().version()), *found]
    )
    sections = {}
    for part in options.part or PARTS:
        taken = f"Taken on {datetime.date.today().isoformat()}, {machine()}. {versions}."
        if part == "cost":
            sections[part] = cost_section(costs([clients[0], Floor(), *clients[1:]], options.rounds), taken)
        elif part == "errors":
            sections[part] = errors_section(accuracies(clients), kept_cache(), taken)
        else:
            sections[part] = rate_section(rates(), taken)
        print(sections[part] + "\n", flush=True)
        if options.write:  # at once: a later part may fail
            write(PAGE, {part: sections[part]})
    return 0


if __name__ == "__main__":
    sys.exit(main())
