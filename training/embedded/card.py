"""Measure an exported folder and write its card: `python -m training.embedded.card --run FOLDER --model FOLDER`.

All numbers are of the exported bfloat16 file, computed in float32 by transformers; they are kept as `measured.json`
in the run's folder. Leaves out training and export.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from training.embedded.baseline import BigramModel, compressed_bits_per_byte
from training.embedded.card_text import card
from training.embedded.corpus import Document, Split, chats, documented_functions, read_split, standard_library
from training.embedded.evaluate import (
    Continuation,
    chat_prompt,
    continuation,
    first_block,
    has_body,
    held_out_loss,
    is_python,
    loss_by_position,
    token_losses,
)
from training.embedded.model import routers, use_training_loops
from training.embedded.recipe import BEGIN, SEED
from training.embedded.sequences import encoded
from training.embedded.train import LOG

MEASURED = "measured.json"
SEQUENCE_LEN = 1024
LONG_LEN = 32_768
POSITION_BOUNDS = (0, 1024, 4096, 8192, 16_384, LONG_LEN)
NUM_FUNCTIONS = 40
MAX_NEW_TOKENS = 256
SAMPLE_PROMPTS = (
    f"{BEGIN}# stack.py\n",
    f'{BEGIN}# words.py\n"""Count words."""\n\nimport re\n\ndef count_words(text):',
)
SAMPLE_REQUEST = "Write the function read_lines. Return the lines of a file."


@dataclass(frozen=True, slots=True)
class TextSize:
    """How much text of one kind there is."""

    num_documents: int
    num_bytes: int
    num_tokens: int


def measure(run_folder: Path, model_folder: Path) -> dict[str, Any]:
    """Every number of the card, as plain JSON values."""
    split = read_split(standard_library())
    made = chats(split.training)
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = _loaded(model_folder)
    reports = [json.loads(line) for line in (run_folder / LOG).read_text().splitlines()]
    return {
        "python": platform.python_version(),
        "recipe": next(report["recipe"] for report in reversed(reports) if "recipe" in report),
        "training": _run_of(reports),
        "sizes": _sizes(tokenizer, split, made),
        "weights": _weights(model, model_folder),
        "losses": _losses(model, tokenizer, split, made),
        "by_position": _losses_by_position(model_folder, _held_out_tokens(tokenizer, split, "code")),
        "functions": _functions(model, tokenizer, split),
        "samples": _samples(model, tokenizer),
        "load": _load(model, tokenizer, split),
    }


def _loaded(model_folder: Path) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    model.train(False)
    return model


def _held_out_tokens(tokenizer: PreTrainedTokenizerBase, split: Split, kind: str) -> torch.Tensor:
    documents = [document for document in split.held_out if document.kind == kind]
    return torch.cat(encoded(tokenizer.backend_tokenizer, documents))


def _run_of(reports: list[dict[str, Any]]) -> dict[str, Any]:
    steps = [report for report in reports if "tokens" in report]
    return {
        "elapsed_s": steps[-1]["elapsed_s"],
        "last_loss": round(sum(report["loss"] for report in steps[-5:]) / len(steps[-5:]), 4),
        "held_out": [
            {"step": report["step"], "loss": report["held_out_loss"]}
            for report in reports
            if "held_out_loss" in report
        ],
    }


def _sizes(tokenizer: PreTrainedTokenizerBase, split: Split, made: tuple[Document, ...]) -> dict[str, Any]:
    groups = {
        "training code": [document for document in split.training if document.kind == "code"],
        "training prose": [document for document in split.training if document.kind == "prose"],
        "training chats": list(made),
        "held-out code": [document for document in split.held_out if document.kind == "code"],
        "held-out prose": [document for document in split.held_out if document.kind == "prose"],
    }
    return {name: asdict(_size(tokenizer, documents)) for name, documents in groups.items()}


def _size(tokenizer: PreTrainedTokenizerBase, documents: list[Document]) -> TextSize:
    num_tokens = sum(len(tokens) for tokens in encoded(tokenizer.backend_tokenizer, documents))
    return TextSize(len(documents), sum(len(document.text.encode()) for document in documents), num_tokens)


def _weights(model: PreTrainedModel, model_folder: Path) -> dict[str, int]:
    experts = [param for name, param in model.named_parameters() if ".experts." in name]
    expert_params = sum(param.numel() for param in experts)
    num_params = sum(param.numel() for param in model.parameters())
    config = model.config
    idle = expert_params * (1 - config.num_experts_per_tok / config.n_routed_experts)
    return {
        "num_params": num_params,
        "num_active_params": round(num_params - idle),
        "file_bytes": (model_folder / "model.safetensors").stat().st_size,
    }


def _losses(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, split: Split, made: tuple[Document, ...]
) -> dict[str, Any]:
    backend = tokenizer.backend_tokenizer
    training = encoded(backend, (*split.training, *made))
    known = b"".join(document.text.encode() for document in split.training)
    bigram = BigramModel((tokens.tolist() for tokens in training), model.config.vocab_size)
    results: dict[str, Any] = {}
    for kind in ("code", "prose"):
        text = b"".join(document.text.encode() for document in split.held_out if document.kind == kind)
        tokens = _held_out_tokens(tokenizer, split, kind)
        loss = held_out_loss(model, tokens, SEQUENCE_LEN)
        tokens_per_byte = len(tokens) / len(text)
        bigram_nats = bigram.nats_per_token(tokens.tolist())
        results[kind] = {
            "nats_per_token": loss.nats_per_token,
            "num_tokens": loss.num_tokens,
            "bits_per_byte": loss.bits_per_byte(tokens_per_byte),
            "bigram_nats_per_token": bigram_nats,
            "bigram_bits_per_byte": bigram_nats / loss.nats_per_token * loss.bits_per_byte(tokens_per_byte),
            "xz_bits_per_byte": compressed_bits_per_byte(text),
            "xz_after_training_bits_per_byte": compressed_bits_per_byte(text, known),
        }
    return results


def _losses_by_position(model_folder: Path, tokens: torch.Tensor) -> list[dict[str, float]]:
    model = _loaded(model_folder)
    short = token_losses(model, tokens, SEQUENCE_LEN)
    # transformers' own attention keeps all scores of a layer: 17 GB at this length. The blocks of training do not.
    use_training_loops(model)
    spans = loss_by_position(model, tokens, LONG_LEN, POSITION_BOUNDS)
    return [
        {
            "from": lower,
            "to": upper,
            "nats_per_token": loss.nats_per_token,
            "short_nats_per_token": _mean_between(short, lower, upper),
            "num_tokens": loss.num_tokens,
        }
        for (lower, upper), loss in spans.items()
    ]


def _mean_between(short: list[torch.Tensor], lower: int, upper: int) -> float:
    """Mean of losses taken in short sequences, over the tokens that stand at [lower, upper) of the long ones."""
    flat = torch.cat(short)
    rows = flat[: len(flat) // LONG_LEN * LONG_LEN].view(-1, LONG_LEN)
    return rows[:, lower:upper].mean().item()


def _functions(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, split: Split) -> dict[str, Any]:
    """Whether functions of held-out modules, asked for in words or by their header, come out as Python."""
    functions = [function for document in split.held_out for function in documented_functions(document)]
    chosen = functions[:: max(1, len(functions) // NUM_FUNCTIONS)][:NUM_FUNCTIONS]
    answers = [_continued(model, tokenizer, chat_prompt(function.request)) for function in chosen]
    # A line break and the next line's indentation are one token: a prompt must end before the break.
    headers = [function.header.rstrip("\n") for function in chosen]
    bodies = [_continued(model, tokenizer, BEGIN + header) for header in headers]
    blocks = [first_block(header + body.text) for header, body in zip(headers, bodies, strict=True)]
    return {
        "num_functions": len(chosen),
        "max_new_tokens": MAX_NEW_TOKENS,
        "answers_ended_frac": sum(answer.is_ended for answer in answers) / len(answers),
        "answers_python_frac": sum(is_python(answer.text) for answer in answers) / len(answers),
        "bodies_python_frac": sum(has_body(block) for block in blocks) / len(blocks),
    }


def _continued(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: str, temperature: float = 0.0
) -> Continuation:
    return continuation(model, tokenizer, prompt, max_new_tokens=MAX_NEW_TOKENS, temperature=temperature)


def _samples(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[dict[str, object]]:
    torch.manual_seed(SEED)
    prompts = (*SAMPLE_PROMPTS, chat_prompt(SAMPLE_REQUEST))
    return [asdict(continuation(model, tokenizer, prompt, max_new_tokens=160, temperature=0.7)) for prompt in prompts]


@torch.no_grad()
def _load(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, split: Split) -> list[dict[str, float]]:
    """Each expert layer's load on held-out text: the busiest and the idlest expert's share of the mean."""
    tokens = torch.cat(encoded(tokenizer.backend_tokenizer, split.held_out))[:16_384].view(-1, SEQUENCE_LEN)
    chosen: list[list[torch.Tensor]] = []
    hooks = []
    for router in routers(model):
        seen: list[torch.Tensor] = []
        chosen.append(seen)
        hooks.append(
            router.register_forward_hook(lambda _, __, outputs, seen=seen: seen.append(outputs[2].flatten()))
        )
    for window in tokens:
        model(input_ids=window[None])
    for hook in hooks:
        hook.remove()
    num_experts = model.config.n_routed_experts
    loads = [torch.bincount(torch.cat(layer), minlength=num_experts).float() for layer in chosen]
    return [
        {"max_over_mean": (load.max() / load.mean()).item(), "min_over_mean": (load.min() / load.mean()).item()}
        for load in loads
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, measure unless measured before, and write the card."""
    parser = argparse.ArgumentParser(description="Measure an exported model and write its card.")
    parser.add_argument("--run", type=Path, required=True, help="the run's folder, with its log")
    parser.add_argument("--model", type=Path, required=True, help="the exported folder")
    parser.add_argument("--render-only", action="store_true", help="write the card from the run's measured.json")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    measured_file = options.run / MEASURED
    if not options.render_only:
        measured_file.write_text(json.dumps(measure(options.run, options.model), indent=1))
    (options.model / "README.md").write_text(card(json.loads(measured_file.read_text())))


if __name__ == "__main__":
    main()
