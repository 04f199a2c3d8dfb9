"""Train the drafter of the embedded model: `python -m training.drafter.train --out FOLDER [--resume]`.

Writes the text to FOLDER/text and runs `deepdraft train-drafter embedded` on it with the recipe's flags.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from deepdraft.cli.main import main as run_command
from training.drafter.recipe import WORDS, write_training_text
from training.embedded.corpus import read_split, standard_library


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is left of the job, with FOLDER/drafter for its result; returns the exit code of the command."""
    parser = argparse.ArgumentParser(description="Train the embedded model's drafter on what that model writes.")
    parser.add_argument("--out", type=Path, required=True, help="folder of the job")
    parser.add_argument("--resume", action="store_true", help="go on with the folder's job")
    parser.add_argument("--num-threads", type=int, default=1, help="threads of torch")
    options = parser.parse_args(arguments)
    text = options.out / "text"
    write_training_text(read_split(standard_library()), text)
    words = ["train-drafter", "embedded", "--out", str(options.out), "--text", str(text), *WORDS]
    words += ["--num-threads", str(options.num_threads), *(["--resume"] if options.resume else [])]
    return run_command(words)


if __name__ == "__main__":
    sys.exit(main())
