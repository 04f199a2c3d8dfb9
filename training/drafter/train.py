"""Train the drafter of the embedded model: `python -m training.drafter.train --out FOLDER [--resume]`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from deepdraft.infer.drafter_training.job import Job
from deepdraft.infer.drafter_training.target import EMBEDDED, load_target
from training.drafter.recipe import job_settings, training_documents
from training.embedded.corpus import read_split, standard_library


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and do what is left of the job; FOLDER/drafter is the result."""
    parser = argparse.ArgumentParser(description="Train the embedded model's drafter on what that model writes.")
    parser.add_argument("--out", type=Path, required=True, help="folder of the job")
    parser.add_argument("--resume", action="store_true", help="go on with the folder's job")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    options = parser.parse_args(arguments)
    target = load_target(EMBEDDED, num_threads=options.threads)
    documents = training_documents(read_split(standard_library()), target.tokenizer)
    job = Job(options.out, job_settings(target), target, report=lambda progress: print(progress.text, flush=True))
    job.run(documents, is_resumed=options.resume)


if __name__ == "__main__":
    main()
