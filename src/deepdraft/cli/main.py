"""`deepdraft`: reads the command line, runs one command, turns errors into one clear line and an exit code.

Exit codes (also in docs/reference/exit_codes.md):

    0    done
    1    done, but requests failed or points were refused; what was measured is kept; plan --check: the server differs
    2    the command line can't be used
    3    the server can't be used: wrong URL, nothing there, no access, not an inference API
    4    the server was lost during the sweep; what was measured is kept, go on with --resume
    5    a results file can't be read or written (a full disk, a foreign or newer file)
    6    with --strict: a guard was violated
    7    selftest: a target was missed
    8    compare --gate: a regression beyond the limit, which the data support
    130  interrupted; what was measured is kept, go on with --resume
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from deepdraft.cli.output import silence_out, write_out
from deepdraft.errors import DeepdraftError, Interrupted, UsageError
from deepdraft.version import VERSION

EXIT_GUARD_VIOLATED = 6
EXIT_TARGET_MISSED = 7
EXIT_REGRESSION = 8

Command = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """Says what is wrong as every error here is said: one line and a hint. Flags can't be shortened, since a
    shortened --api-key would slip through what keeps keys out of results files."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})
        self.fill: Callable[[], None] | None = None
        """Adds the arguments once they are needed, where naming them takes imports that other commands don't want."""

    def parse_known_args(self, *words: Any, **settings: Any) -> Any:
        """As argparse has it."""
        self._fill()
        return super().parse_known_args(*words, **settings)

    def format_help(self) -> str:
        """As argparse has it."""
        self._fill()
        return super().format_help()

    def _fill(self) -> None:
        fill, self.fill = self.fill, None
        if fill is not None:
            fill()

    def error(self, message: str) -> NoReturn:
        """Raises UsageError."""
        raise UsageError(message, hint=f"{self.prog} --help")


def parser() -> Parser:
    """The whole command line."""
    from deepdraft.cli import (
        bench,
        compare,
        explain,
        import_results,
        plan,
        report,
        selftest,
        serve,
        servers,
        show,
        simulate,
        sweep,
        train_drafter,
    )

    top = Parser(
        prog="deepdraft",
        description="Measures, explains and improves long-context LLM serving with speculative decoding.",
        epilog="Every command has its own --help. Documentation: docs/ in the source tree.",
    )
    top.add_argument("--version", action="version", version=f"deepdraft {VERSION}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    named = (sweep, show, import_results, explain, compare, plan, report, servers, serve, train_drafter, bench)
    for module in (*named, simulate, selftest):
        module.add_command(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    try:
        namespace = _parsed(sys.argv[1:] if arguments is None else arguments)
        if namespace is None:
            code = 0
        else:
            run: Command = namespace.run
            code = run(namespace)
        write_out("")  # what is still in the buffer
        return code
    except KeyboardInterrupt:
        return report_error(Interrupted("interrupted"))
    except BrokenPipeError:
        silence_out()
        return 1
    except DeepdraftError as error:
        return report_error(error)


def report_error(error: DeepdraftError) -> int:
    """Print an error as it is printed everywhere; returns its exit code."""
    print(f"deepdraft: {_in_a_line(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"hint: {_in_a_line(error.hint)}", file=sys.stderr)
    return error.exit_code


def _in_a_line(text: str) -> str:
    return " ".join(text.split())


def _parsed(arguments: Sequence[str]) -> argparse.Namespace | None:
    """The flags; None when --help or --version was all that was asked. Raises UsageError."""
    namespace: argparse.Namespace
    rest: list[str]
    try:
        namespace, rest = parser().parse_known_args(arguments)
    except SystemExit:
        return None
    if rest:
        # What follows an unknown flag may be a key; the flag itself says enough.
        unknown = rest[0].partition("=")[0]
        raise UsageError(f"unknown argument: {unknown}", hint=f"deepdraft {namespace.command} --help")
    namespace.words = ("deepdraft", *arguments)
    return namespace


if __name__ == "__main__":
    sys.exit(main())
