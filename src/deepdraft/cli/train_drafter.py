"""`deepdraft train-drafter TARGET --text FILE... --out DIR`: a DFlash drafter for a target, and its acceptance."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepdraft.cli.stop import Stop, stop_signal
from deepdraft.cli.train_drafter_flags import RESULTS, add_training_flags
from deepdraft.errors import UsageError

if TYPE_CHECKING:
    from deepdraft.infer.drafter_training.evaluation import EvaluatedPoint, EvaluationSettings
    from deepdraft.infer.drafter_training.job_settings import JobSettings
    from deepdraft.infer.drafter_training.progress import Progress
    from deepdraft.infer.drafter_training.target import Target

_NEEDED = ("numpy", "safetensors", "tokenizers", "torch")


def add_command(commands: Any) -> None:
    """Add `train-drafter` to the command line."""
    parser = commands.add_parser(
        "train-drafter",
        help="train a DFlash drafter for a model, or evaluate one",
        description="Trains a DFlash drafter for TARGET: the target writes answers to prompts cut from the text, and "
        "the drafter learns to foresee them from the target's hidden states. DIR/drafter is what `deepdraft serve "
        "--drafter` takes. Ctrl-C keeps what is done; --resume goes on from there, step for step. With --evaluate "
        "nothing is trained: the acceptance of a drafter on --eval-text is written as results files.",
    )
    parser.fill = lambda: add_training_flags(parser)
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Train and evaluate, or evaluate alone."""
    _check(namespace)
    from deepdraft.infer.drafter_training.target import load_target

    results = namespace.out / RESULTS
    if namespace.eval_text and results.exists():
        raise UsageError(f"{results} exists already", hint="move it away, or name another --out")
    target = load_target(namespace.target, num_threads=namespace.num_threads)
    if namespace.evaluate is None:
        with stop_signal() as stop:
            _train(namespace, target, stop)
    if namespace.eval_text:
        _evaluate(namespace, target, results)
    return 0


def _check(namespace: argparse.Namespace) -> None:
    """Raises UsageError for flags that contradict, and for missing packages."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"training needs {', '.join(missing)}", hint='run: pip install "deepdraft[serve]" (and torch)'
        )
    if namespace.evaluate is None and not namespace.text:
        raise UsageError("there is no text to learn from", hint="name files with --text")
    if namespace.evaluate is not None:
        if not namespace.eval_text:
            raise UsageError(
                "--evaluate needs text", hint="name files that the drafter did not learn with --eval-text"
            )
        if namespace.text or namespace.resume:
            raise UsageError("--evaluate trains nothing", hint="leave out --text and --resume")
    if namespace.regenerate is not None and namespace.no_regenerate:
        raise UsageError("--regenerate and --no-regenerate contradict", hint="leave out one of them")
    if namespace.steps is not None and namespace.tokens is not None:
        raise UsageError("--steps and --tokens both say how long", hint="leave out one of them")


def _train(namespace: argparse.Namespace, target: Target, stop: Stop) -> None:
    from deepdraft.infer.drafter_training.job import DRAFTER, Job
    from deepdraft.infer.drafter_training.prompts import read_documents

    documents = read_documents(namespace.text, target.tokenizer)
    job = Job(
        namespace.out,
        _job_settings(namespace, target),
        target,
        report=_print_progress,
        is_asked_to_stop=lambda: stop.is_asked,
    )
    module = job.run(documents, is_resumed=namespace.resume)
    num_params = sum(param.numel() for param in module.parameters())
    print(f"deepdraft: a drafter of {num_params:,} parameters in {namespace.out / DRAFTER}", file=sys.stderr)


def _job_settings(namespace: argparse.Namespace, target: Target) -> JobSettings:
    from dataclasses import replace

    from deepdraft.infer.drafter_training.defaults import drafter_shape
    from deepdraft.infer.drafter_training.job_settings import JobSettings, long_texts_for
    from deepdraft.infer.drafter_training.shape import TrainingRecipe

    shape = drafter_shape(
        target,
        mask_token_id=namespace.mask_token_id,
        target_layers=namespace.target_layers,
        **_said(namespace, "block_size", "num_layers", "draft_window"),
    )
    recipe = TrainingRecipe(**_said(namespace, "seed", "long_frac"))
    if namespace.tokens is not None:
        step_tokens = recipe.num_sequences * recipe.num_anchors * shape.draft_len
        recipe = replace(recipe, num_steps=max(1, namespace.tokens // step_tokens))
    elif namespace.steps is not None:
        recipe = replace(recipe, num_steps=namespace.steps)
    settings = JobSettings(
        shape=shape,
        recipe=recipe,
        is_regenerated=not namespace.no_regenerate,
        **_said(namespace, "sequence_len", "output_len"),
    )
    num_answers = settings.num_answers
    if namespace.regenerate is not None:
        num_answers = max(1, namespace.regenerate // settings.output_len)
    return replace(settings, num_answers=num_answers, num_long_texts=long_texts_for(recipe, num_answers))


def _evaluate(namespace: argparse.Namespace, target: Target, results: Path) -> None:
    from deepdraft.infer.drafter_training.evaluation import evaluated
    from deepdraft.infer.drafter_training.export import read_drafter
    from deepdraft.infer.drafter_training.job import DRAFTER
    from deepdraft.infer.drafter_training.prompts import read_documents

    folder = namespace.evaluate or namespace.out / DRAFTER
    module = read_drafter(folder)
    settings = _evaluation_settings(namespace)
    documents = read_documents(namespace.eval_text, target.tokenizer)
    points = evaluated(module, target, documents, settings, lambda line: print(f"deepdraft: {line}", file=sys.stderr))
    results.mkdir(parents=True, exist_ok=True)
    _write_results(points, namespace, target, folder, results)
    print(f"deepdraft: acceptance of {folder} written to {results}", file=sys.stderr)


def _evaluation_settings(namespace: argparse.Namespace) -> EvaluationSettings:
    from deepdraft.infer.drafter_training.acceptance import CHAIN
    from deepdraft.infer.drafter_training.evaluation import EvaluationSettings

    said = _said(namespace, "output_len", "seed")
    if namespace.eval_context_lens is not None:
        said["context_lens"] = namespace.eval_context_lens
    if namespace.eval_prompts is not None:
        said["num_prompts"] = namespace.eval_prompts
    if namespace.tree_budgets is not None:
        said["budgets"] = (CHAIN, *namespace.tree_budgets)
    return EvaluationSettings(**said)


def _write_results(
    points: list[EvaluatedPoint], namespace: argparse.Namespace, target: Target, folder: Path, results: Path
) -> None:
    from deepdraft.cli.acceptance_results import acceptance_runs
    from deepdraft.records.file import ResultsWriter
    from deepdraft.records.redact import redacted_command_line

    command_line = redacted_command_line(namespace.words)
    runs = acceptance_runs(points, target_name=target.name, folder=folder, command_line=command_line)
    for name, found in runs.items():
        writer = ResultsWriter.create(results / f"{name}.jsonl", found.header)
        try:
            writer.append(*found.reported, *found.notes, *found.ends)
        finally:
            writer.close()


def _said(namespace: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The flags that were given, by the settings' own names."""
    return {name: value for name in names if (value := getattr(namespace, name)) is not None}


def _print_progress(progress: Progress) -> None:
    print(f"deepdraft: {progress.text}", file=sys.stderr)
