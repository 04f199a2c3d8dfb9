"""`python -m deepdraft.simulate`: the child process behind `process.running`.

Reads a spec as one line of JSON on standard input, prints `url URL` when it listens, and ends when standard input
closes (its parent is gone) or on SIGTERM. With flags it is the same as `deepdraft simulate`.
"""

from __future__ import annotations

import argparse
import sys

from deepdraft.errors import DeepdraftError
from deepdraft.simulate import options, process


def main() -> int:
    """Returns the exit code."""
    try:
        if sys.argv[1:] == [process.STDIN_FLAG]:
            return process.serve_parent()
        parser = argparse.ArgumentParser(prog="python -m deepdraft.simulate", description=options.DESCRIPTION)
        options.add_arguments(parser)
        return options.run(parser.parse_args())
    except DeepdraftError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
