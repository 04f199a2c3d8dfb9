"""One training job in one folder: answers, features, steps, the exported drafter; each part goes on where it stopped.

    job.json         what was asked; a resumed job must ask the same (but for the number of steps)
    written.jsonl    the target's answers
    samples/         answers with the target's features
    checkpoint.pt    weights, optimizers, step
    log.jsonl        one line a report
    drafter/         the result

Leaves out how progress is shown and how a wish to stop arrives: both are given as functions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from time import monotonic

from deepdraft.errors import Interrupted, UsageError
from deepdraft.infer.drafter_training.draft_module import DraftModule
from deepdraft.infer.drafter_training.export import write_drafter
from deepdraft.infer.drafter_training.features import FeatureReader
from deepdraft.infer.drafter_training.job_settings import JobSettings, as_json, check_same
from deepdraft.infer.drafter_training.progress import Progress, Report
from deepdraft.infer.drafter_training.prompts import PROMPTS_PER_TEXT, Prompt, Prompts
from deepdraft.infer.drafter_training.sample import Sample
from deepdraft.infer.drafter_training.sample_file import read_samples, write_samples
from deepdraft.infer.drafter_training.target import Target
from deepdraft.infer.drafter_training.training import Training
from deepdraft.infer.drafter_training.written import Written, answers, append_written, own_continuation, read_written

SAMPLES_PER_FILE = 100
CHECKPOINT_EVERY_S = 120.0
REPORT_EVERY_STEPS = 50
DRAFTER = "drafter"
_JOB, _WRITTEN, _SAMPLES, _CHECKPOINT, _LOG = "job.json", "written.jsonl", "samples", "checkpoint.pt", "log.jsonl"


class Job:
    """The parts of one job, in order. `is_asked_to_stop` is looked at between pieces of work of a second or so."""

    def __init__(
        self,
        folder: Path,
        settings: JobSettings,
        target: Target,
        *,
        report: Report,
        is_asked_to_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.folder = folder
        self.settings = settings
        self._target = target
        self._report_to = report
        self._is_asked_to_stop = is_asked_to_stop

    def run(self, documents: Sequence[Sequence[int]], *, is_resumed: bool) -> DraftModule:
        """Do what is left, and export. Raises Interrupted, with all work kept, when asked to stop; UsageError where
        the folder holds another job, or one that was not asked to go on."""
        self._open(as_json(self.settings, self._target.name, documents), is_resumed)
        self._write(documents)
        samples = self._samples(documents)
        module = self._train(samples)
        write_drafter(module, self.folder / DRAFTER)
        return module

    def _open(self, asked: dict[str, object], is_resumed: bool) -> None:
        file = self.folder / _JOB
        if not is_resumed:
            if file.exists():
                raise UsageError(
                    f"{self.folder} holds a job already", hint="go on with --resume, or name another --out"
                )
            (self.folder / _SAMPLES).mkdir(parents=True, exist_ok=True)
        elif not file.exists():
            raise UsageError(f"{self.folder} holds no job to go on with", hint="leave out --resume")
        else:
            check_same(json.loads(file.read_text()), asked)
        file.write_text(json.dumps(asked, indent=2) + "\n")

    def _write(self, documents: Sequence[Sequence[int]]) -> None:
        """Short answers first, then those of each long text."""
        file, settings = self.folder / _WRITTEN, self.settings
        _end_line(file)
        done = {one.number for one in read_written(file)}
        prompts = self._prompts(documents)
        groups: list[tuple[tuple[int, ...], list[Prompt]]] = [
            ((), [prompts.short(n, continuation_len=settings.output_len) for n in range(settings.num_answers)])
        ]
        for number in range(settings.num_long_texts):
            first = settings.num_answers + number * PROMPTS_PER_TEXT
            long = prompts.long(number, first_number=first, continuation_len=settings.output_len)
            groups.append((prompts.long_text(number), long))
        num_all, num_before, started_s = sum(len(group) for _, group in groups), len(done), monotonic()
        num_done = num_before
        for shared_text, group in groups:
            for one in self._answers([prompt for prompt in group if prompt.number not in done], shared_text):
                append_written([one], file)
                num_done += 1
                if num_done % 20 == 0 or num_done == num_all:
                    self._report("writing", num_done, num_all, "answers", started_s, num_before)
                self._check_stop()

    def _answers(self, prompts: Sequence[Prompt], shared_text: Sequence[int]) -> Iterable[Written]:
        if not self.settings.is_regenerated:
            return map(own_continuation, prompts)
        target, max_tokens = self._target, self.settings.output_len
        return answers(target.model, target.tokenizer, prompts, max_tokens=max_tokens, shared_text=shared_text)

    def _prompts(self, documents: Sequence[Sequence[int]]) -> Prompts:
        settings = self.settings
        max_len = self._target.max_context_len - settings.output_len
        return Prompts(
            documents,
            seed=settings.recipe.seed,
            max_short_len=min(settings.sequence_len - settings.output_len, max_len),
            max_long_len=max_len,
        )

    def _samples(self, documents: Sequence[Sequence[int]]) -> list[Sample]:
        """Of all answers with more than one token: files of short ones, then a file of each long text."""
        num_short = self.settings.num_answers
        written = [one for one in read_written(self.folder / _WRITTEN) if len(one.output) > 1]
        if not written:
            raise UsageError("no answer is longer than one token: there is nothing to learn from")
        groups: dict[str, list[Written]] = {}
        for one in written:
            if one.number < num_short:
                name = f"short_{one.number // SAMPLES_PER_FILE:05d}.pt"
            else:
                name = f"long_{(one.number - num_short) // PROMPTS_PER_TEXT:05d}.pt"
            groups.setdefault(name, []).append(one)
        files = [self.folder / _SAMPLES / name for name in groups]
        num_before, started_s = sum(file.exists() for file in files), monotonic()
        prompts = self._prompts(documents)
        longest = max(len(one.prompt) + len(one.output) for one in written)
        longest = max(longest, len(prompts.long_text(0)) if self.settings.num_long_texts else 0)
        reader = FeatureReader(self._target.model, self.settings.shape.target_layers, longest)
        for number, (file, group) in enumerate(zip(files, groups.values(), strict=True), start=1):
            if file.exists():
                continue
            write_samples(self._with_features(reader, group, prompts), file)
            self._report("features", number, len(files), "files", started_s, num_before)
        return [sample for file in files for sample in read_samples(file)]

    def _with_features(self, reader: FeatureReader, written: Sequence[Written], prompts: Prompts) -> list[Sample]:
        window, num_short = self.settings.shape.draft_window, self.settings.num_answers
        self._check_stop()
        if written[0].number >= num_short:
            text = prompts.long_text((written[0].number - num_short) // PROMPTS_PER_TEXT)
            outputs = [(len(one.prompt), one.output) for one in written]
            return reader.samples_of_text(text, outputs, window)
        samples = []
        for one in written:
            self._check_stop()
            samples.append(reader.sample(one.prompt, one.output, window))
        return samples

    def _train(self, samples: Sequence[Sample]) -> DraftModule:
        settings, target = self.settings, self._target
        training = Training(
            settings.shape,
            settings.recipe,
            embedding=target.embedding,
            output=target.output,
            final_norm=target.final_norm,
        )
        file = self.folder / _CHECKPOINT
        if file.exists():
            training.load(file)
        num_before, num_steps = training.num_steps_done, settings.recipe.num_steps
        started_s = saved_s = monotonic()
        losses: list[float] = []
        while training.num_steps_done < num_steps:
            losses.append(training.step(samples))
            num_done = training.num_steps_done
            is_over = self._is_asked_to_stop() or num_done == num_steps
            if is_over or monotonic() - saved_s > CHECKPOINT_EVERY_S:
                training.save(file)
                saved_s = monotonic()
            if is_over or num_done % REPORT_EVERY_STEPS == 0:
                loss = sum(losses) / len(losses)
                self._report("training", num_done, num_steps, "steps", started_s, num_before, loss)
                losses = []
            self._check_stop()
        return training.module

    def _check_stop(self) -> None:
        if self._is_asked_to_stop():
            raise Interrupted(f"interrupted; what is done is kept in {self.folder}", hint="go on with --resume")

    def _report(
        self,
        part: str,
        num_done: int,
        num_all: int,
        unit: str,
        started_s: float,
        num_before: int,
        loss: float | None = None,
    ) -> None:
        progress = Progress(
            part=part,
            num_done=num_done,
            num_all=num_all,
            unit=unit,
            elapsed_s=monotonic() - started_s,
            num_before=num_before,
            loss=loss,
        )
        with (self.folder / _LOG).open("a") as log:
            log.write(json.dumps(asdict(progress)) + "\n")
        self._report_to(progress)


def _end_line(file: Path) -> None:
    """Cut off what a crash left of a line."""
    if not file.exists():
        return
    content = file.read_bytes()
    kept = content.rfind(b"\n") + 1
    if kept < len(content):
        with file.open("r+b") as stream:
            stream.truncate(kept)
