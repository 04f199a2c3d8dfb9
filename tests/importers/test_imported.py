"""Several files of one tool as one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deepdraft.errors import ResultsError
from deepdraft.importers import import_file

SAMPLES = Path(__file__).parents[1] / "samples"
SUMMARY = SAMPLES / "vllm-0.32.0" / "bench_serve_summary.json"


def _variant(folder: Path, name: str, **changes: object) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(json.loads(SUMMARY.read_text()) | changes))
    return path


def test_a_file_a_length_becomes_a_curve(tmp_path: Path) -> None:
    files = [_variant(tmp_path, f"len{length}", total_input_tokens=6 * length) for length in (1000, 4000, 16_000)]
    run = import_file(*files)
    assert [line.context_len for line in run.reported] == [1000, 4000, 16_000]
    assert run.header.source is not None
    assert run.header.source.path == "len1000.json, len4000.json, len16000.json"
    assert run.header.source.sha256 is None
    assert run.header.spec.context_lens == (1000, 4000, 16_000)
    assert run.header.capabilities.model == "sim"
    assert len(set(run.header.source.traps)) == len(run.header.source.traps)


def test_what_the_files_do_not_agree_on_is_not_said(tmp_path: Path) -> None:
    run = import_file(_variant(tmp_path, "a"), _variant(tmp_path, "b", tokenizer_id="other", date="20261130-000000"))
    assert run.header.capabilities.tokenizer is None
    (doubt,) = run.header.capabilities.doubts
    assert doubt == "the files do not agree on tokenizer"


def test_other_models_and_tools_are_runs_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="different models: sim, other"):
        import_file(_variant(tmp_path, "a"), _variant(tmp_path, "b", model_id="other"))
    with pytest.raises(ResultsError, match="different tools"):
        import_file(SUMMARY, SAMPLES / "llama-benchy-0.4.0" / "depth_concurrency.json")


def test_a_loss_names_its_file(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.json"
    damaged.write_text(SUMMARY.read_text() + '{"torn')
    run = import_file(SUMMARY, damaged)
    assert len(run.reported) == 2
    (loss,) = [note.message for note in run.notes if note.topic == "loss"]
    assert loss.startswith("damaged.json: ")
