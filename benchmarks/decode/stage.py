"""What is loaded once, and the recording of the long text that all contexts begin with."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.embedded import embedded_model_path
from deepdraft.infer.checkpoint.open import open_checkpoint
from deepdraft.infer.engine import Engine
from deepdraft.infer.kernels.select import AUTO as FASTEST
from deepdraft.infer.models.load import load_model
from deepdraft.infer.models.model import Model
from deepdraft.infer.request import Request, SamplingParams
from deepdraft.infer.settings import DEFAULT_CHUNK_LEN, DEFAULT_PAGE_SIZE, EngineSettings
from deepdraft.infer.tokenizer.tokenizer import Tokenizer
from deepdraft.units import seconds_text

from .recording import PrefixRecording, RecordingModel
from .text import TAIL_LEN, Texts, read_texts

PAGE_SIZE = DEFAULT_PAGE_SIZE
_TOLD_LEN = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What is loaded once."""

    model: Model
    tokenizer: Tokenizer
    texts: Texts
    recording: PrefixRecording
    context_lens: tuple[int, ...]
    """Multiples of TAIL_LEN, so that chunks of as many tokens end where the shared text does."""


def loaded_stage(folder: Path, context_lens: Sequence[int], *, num_tails: int) -> Stage:
    """The embedded model and the texts; lengths are rounded up. folder: of the recording. Raises UsageError for a
    length that leaves no room for the shared text."""
    lens = tuple(sorted({-(-each // TAIL_LEN) * TAIL_LEN for each in context_lens}))
    if lens[0] <= TAIL_LEN:
        raise UsageError(f"contexts of {TAIL_LEN} tokens or fewer have no shared text")
    model_path = embedded_model_path()
    checkpoint = open_checkpoint(model_path)
    model, tokenizer = load_model(checkpoint), checkpoint.tokenizer()
    texts = read_texts(tokenizer, prefix_len=lens[-1] - TAIL_LEN, num_tails=num_tails)
    digest = hashlib.sha256((model_path / "model.safetensors").read_bytes()).hexdigest()
    ends = [each - TAIL_LEN for each in lens]
    recording = PrefixRecording(folder, model.config, digest, texts.prefix, ends)
    return Stage(model=model, tokenizer=tokenizer, texts=texts, recording=recording, context_lens=lens)


def settings(max_len: int, *, num_answers: int, decode_len: int, chunk_len: int, backend: str) -> EngineSettings:
    """Room for the longest prompt and every answer: nothing is evicted."""
    room_len = max_len + num_answers * (TAIL_LEN + decode_len + 2 * PAGE_SIZE) + 512
    return EngineSettings(
        max_context_len=max_len + decode_len,
        kv_pool_tokens=-(-room_len // PAGE_SIZE) * PAGE_SIZE,
        page_size=PAGE_SIZE,
        chunk_len=chunk_len,
        max_running_requests=1,
        attention_backend=backend,
    )


def record(stage: Stage, say: Callable[[str], None]) -> None:
    """Compute what is missing of the text; a line now and then says how far it is."""
    recording, num_tokens = stage.recording, len(stage.texts.prefix)
    if recording.num_held == num_tokens:
        return
    started_s, first = time.monotonic(), recording.num_held

    def on_held(num_held: int) -> None:
        if num_held == num_tokens or num_held // _TOLD_LEN != (num_held - DEFAULT_CHUNK_LEN) // _TOLD_LEN:
            took_s = time.monotonic() - started_s
            left_s = took_s * (num_tokens**2 - num_held**2) / max(1, num_held**2 - first**2)  # attention bound
            say(f"prefix: {num_held:,} of {num_tokens:,} tokens; about {seconds_text(left_s)} left")

    of_engine = settings(num_tokens, num_answers=1, decode_len=2, chunk_len=DEFAULT_CHUNK_LEN, backend=FASTEST)
    recorder = Engine(RecordingModel(stage.model, recording, on_held), stage.tokenizer, of_engine)
    prompt = (*stage.texts.prefix, stage.texts.tails[0][0])
    sampling = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
    recorder.submit(Request(request_id="prefix", prompt_token_ids=prompt, sampling=sampling))
    while recorder.has_work:
        recorder.step()
