"""`deepdraft`: reads the command line, runs one command, turns errors into one clear line and an exit code.

Exit codes (also in docs/reference/exit_codes.md):

    0    done
    1    done, but requests failed or points were refused; what was measured is kept
    2    the command line can't be used
    3    the server can't be used: wrong URL, nothing there, no access, not an inference API
    4    the server was lost during the sweep; what was measured is kept, go on with --resume
    5    a results file can't be read or written (a full disk, a foreign or newer file)
    6    with --strict: a guard was violated
    7    selftest: a target was missed
    130  interrupted; what was measured is kept, go on with --resume
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from deepdraft.errors import DeepdraftError, Interrupted
from deepdraft.version import VERSION

EXIT_GUARD_VIOLATED = 6
EXIT_TARGET_MISSED = 7

Command = Callable[[argparse.Namespace], int]


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    from deepdraft.cli import selftest, servers, show, simulate, sweep

    top = argparse.ArgumentParser(
        prog="deepdraft",
        description="Measures, explains and improves long-context LLM serving with speculative decoding.",
        epilog="Every command has its own --help. Documentation: docs/ in the source tree.",
    )
    top.add_argument("--version", action="version", version=f"deepdraft {VERSION}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (sweep, show, servers, simulate, selftest):
        module.add_command(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    namespace = parser().parse_args(arguments)
    run: Command = namespace.run
    try:
        return run(namespace)
    except KeyboardInterrupt:
        return _report(Interrupted("interrupted"))
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nothing to say, nowhere to say it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except DeepdraftError as error:
        return _report(error)


def _report(error: DeepdraftError) -> int:
    print(f"deepdraft: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
