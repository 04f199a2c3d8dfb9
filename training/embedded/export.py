"""Write the model folder others load: `python -m training.embedded.export --run FOLDER --to MODEL_FOLDER`.

Reads a run's checkpoint and tokenizer; writes config.json, model.safetensors (bfloat16), generation_config.json, the
tokenizer's files and the chat template, in the form of published DeepSeek-V3 checkpoints (one tensor an expert's
projection), and checks the result by loading it. Leaves out the model card: see `card`.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    GenerationConfig,
)

from training.embedded.model import MAX_POSITIONS, model_config
from training.embedded.recipe import BEGIN, END, ROPE_THETA, SPECIAL_TOKENS, rope_parameters
from training.embedded.train import CHECKPOINT, TOKENIZER
from training.embedded.vocabulary import wrapped


class NotLoadable(Exception):
    """The written folder does not load as the model that was written."""


def export(run_folder: Path, model_folder: Path) -> None:
    """Export a run's newest checkpoint. Raises NotLoadable where the folder read back says something else."""
    content = torch.load(run_folder / CHECKPOINT, weights_only=True)
    model = final_model(content["model"])
    write_folder(model, Tokenizer.from_file(str(run_folder / TOKENIZER)), model_folder)
    check_folder(model, model_folder)


def final_model(weights: Mapping[str, torch.Tensor], **changes: object) -> DeepseekV3ForCausalLM:
    """Trained weights under the final config (YaRN), rounded to bfloat16; the router's choice bias stays float32."""
    model = _model_with(model_config(is_yarn=True, **changes), weights)
    rounded = {
        # Differences of the bias decide which expert is chosen, and are smaller than bfloat16 resolves.
        name: value if name.endswith("e_score_correction_bias") else value.to(torch.bfloat16)
        for name, value in weights.items()
    }
    model.load_state_dict(rounded, assign=True)
    model.tie_weights()
    model.config.dtype = torch.bfloat16
    return model


def float_copy(model: DeepseekV3ForCausalLM) -> DeepseekV3ForCausalLM:
    """A float32 model of the same, rounded, weights: to compute with."""
    weights = {name: value.float() for name, value in model.state_dict().items()}
    return _model_with(copy.deepcopy(model.config), weights)


def _model_with(config: DeepseekV3Config, weights: Mapping[str, torch.Tensor]) -> DeepseekV3ForCausalLM:
    model = DeepseekV3ForCausalLM(config)
    model.load_state_dict(weights)
    ids = {"bos_token_id": BEGIN, "eos_token_id": END, "pad_token_id": END}
    model.generation_config = GenerationConfig.from_dict(
        {name: SPECIAL_TOKENS.index(token) for name, token in ids.items()}
    )
    model.train(False)
    return model


def write_folder(model: DeepseekV3ForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    """Write all files but the card."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    wrapped(tokenizer, MAX_POSITIONS).save_pretrained(folder)
    _add_fields(folder / "config.json", _fields_of_older_readers())
    _add_fields(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
    for file in folder.iterdir():
        file.chmod(0o644)


def check_folder(model: DeepseekV3ForCausalLM, folder: Path) -> None:
    """Load the folder and compare positions, logits and text with what was written; raises NotLoadable."""
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).train(False)
    if not rope_parameters(is_yarn=True).items() <= loaded.config.rope_parameters.items():
        raise NotLoadable(f"positions read back as {loaded.config.rope_parameters}")
    tokens = torch.arange(64).remainder(model.config.vocab_size)[None]
    written = float_copy(model)
    with torch.no_grad():
        difference = (loaded(input_ids=tokens).logits - written(input_ids=tokens).logits).abs().max().item()
    if not difference < 1e-4:
        raise NotLoadable(f"logits differ by up to {difference:.3g}")
    text = "def é():\n\treturn '\U0001f40d'  # \x00\n"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer.decode(tokenizer.encode(text)) != text:
        raise NotLoadable("the tokenizer does not give back the text it was given")


def _add_fields(file: Path, fields: dict[str, Any]) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}, indent=2, sort_keys=True) + "\n")


def _fields_of_older_readers() -> dict[str, Any]:
    """What published DeepSeek-V3 configs say and newer transformers no longer writes; other engines read it."""
    scaling = {name: value for name, value in rope_parameters(is_yarn=True).items() if name != "rope_theta"}
    return {
        "rope_theta": ROPE_THETA,
        "rope_scaling": {**scaling, "type": "yarn"},
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "moe_layer_freq": 1,
        "use_cache": True,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and export."""
    parser = argparse.ArgumentParser(description="Export a trained run as a Hugging Face folder.")
    parser.add_argument("--run", type=Path, required=True, help="the run's folder")
    parser.add_argument("--to", type=Path, required=True, help="the model folder to write")
    options = parser.parse_args(arguments)
    export(options.run, options.to)


if __name__ == "__main__":
    main()
