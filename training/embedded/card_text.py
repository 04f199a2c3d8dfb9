"""The model card's wording, filled with measured numbers. Leaves out measuring: see `card`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from training.embedded.recipe import HELD_OUT_MODULES, HELD_OUT_TOPICS, ORIGINAL_POSITIONS, YARN_FACTOR

_FRONT = """\
---
license: apache-2.0
language:
- code
- en
library_name: transformers
pipeline_tag: text-generation
tags:
- deepseek_v3
- mixture-of-experts
- mla
---
"""


def card(measured: Mapping[str, Any]) -> str:
    """The README.md of the model folder, from the values `card.measure` returns."""
    parts = (
        _FRONT,
        _purpose(measured),
        _shape(measured),
        _text(measured),
        _recipe(measured),
        _losses(measured),
        _positions(measured),
        _writing(measured),
        _samples(measured),
        _reproducing(),
    )
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def _purpose(measured: Mapping[str, Any]) -> str:
    weights = measured["weights"]
    return f"""
# Deepdraft's embedded model

A {weights["num_params"] / 1e6:.1f}M-parameter language model of Kimi K2's form (`deepseek_v3`: latent attention,
experts with a sigmoid router and choice bias, YaRN). It exists to exercise a serving stack on a laptop: real weights,
real routing, text that is plausible enough for drafting and prefix reuse to behave as they do at scale.

It is **not an assistant**. It has read one machine's Python standard library and nothing else; what it writes looks
like Python, and is wrong.
"""


def _shape(measured: Mapping[str, Any]) -> str:
    weights = measured["weights"]
    return f"""
## Size

| | |
|---|---|
| parameters | {weights["num_params"]:,} ({weights["num_active_params"]:,} used for a token) |
| file | {weights["file_bytes"]:,} bytes, bfloat16 (the router's choice bias float32) |
| layers | 6: the first dense (512), five with 16 experts of 96, 2 chosen, and 1 shared |
| attention | MLA, 4 heads: 32 + 16 rotary per key, 32 per value; latent 64 (queries 96) |
| cached a token | 6 x (64 + 16) numbers |
| vocabulary | 4,096, byte-level BPE; any UTF-8 text round trips |
"""


def _text(measured: Mapping[str, Any]) -> str:
    rows = "\n".join(
        f"| {name} | {size['num_documents']:,} | {size['num_bytes']:,} | {size['num_tokens']:,} |"
        for name, size in measured["sizes"].items()
    )
    modules = ", ".join(f"`{name}`" for name in HELD_OUT_MODULES)
    topics = ", ".join(f"`{name}`" for name in HELD_OUT_TOPICS)
    return f"""
## Text

The standard library of Python {measured["python"]} without tests and pure tables; the language reference's topics
(`pydoc_data`) as prose; and short chats made from functions that have docstrings. Python's licence (PSF-2.0) allows
this use; the text itself is not in the folder.

| part | documents | bytes | tokens |
|---|---|---|---|
{rows}

Held out as whole modules, from training and from the vocabulary: {modules}. Held-out topics: {topics}.
"""


def _recipe(measured: Mapping[str, Any]) -> str:
    recipe, run = measured["recipe"], measured["training"]
    num_steps = recipe["total_tokens"] // recipe["batch_tokens"]
    learnt = sum(size["num_tokens"] for name, size in measured["sizes"].items() if name.startswith("training"))
    stages = ", then ".join(
        f"{stage['sequence_len']:,} tokens{' with YaRN' if stage['is_yarn'] else ''} to {stage['until_frac']:.0%}"
        for stage in recipe["stages"]
    )
    return f"""
## Recipe

{num_steps:,} steps of {recipe["batch_tokens"]:,} tokens, {recipe["total_tokens"] / 1e6:.1f}M in all
({recipe["total_tokens"] / learnt:.1f} passes over the text), seed {recipe["seed"]}. Sequences of {stages} of the run.
Muon (peak {recipe["muon_lr"]:g}, decay {recipe["weight_decay"]:g}) for matrices, AdamW (peak {recipe["adamw_lr"]:g})
for embedding, norms and routers; warm-up, then a straight line to zero. The choice bias moves by the
auxiliary-loss-free rule. Float32 weights, matrix products in {recipe["matmul_dtype"]}.
{run["elapsed_s"] / 60:.0f} minutes on one core of a machine with two (x86-64, AVX512-BF16; the other was busy).
Training loss at the end: {run["last_loss"]:.3f} nats a token.
"""


def _losses(measured: Mapping[str, Any]) -> str:
    rows = []
    for kind in ("code", "prose"):
        loss = measured["losses"][kind]
        rows += [
            f"| held-out {kind} ({loss['num_tokens']:,} tokens) | **this model** | {loss['nats_per_token']:.3f} "
            f"| {loss['bits_per_byte']:.3f} |",
            f"| | bigram counts (Witten-Bell) over the same tokens | {loss['bigram_nats_per_token']:.3f} "
            f"| {loss['bigram_bits_per_byte']:.3f} |",
            f"| | xz after the training text | | {loss['xz_after_training_bits_per_byte']:.3f} |",
            f"| | xz alone | | {loss['xz_bits_per_byte']:.3f} |",
        ]
    table = "\n".join(rows)
    load = measured["load"]
    busiest = max(layer["max_over_mean"] for layer in load)
    idlest = min(layer["min_over_mean"] for layer in load)
    return f"""
## Loss on held-out text

Of the file in this folder, computed in float32, in sequences of 1,024 tokens each from its own start.

| text | predictor | nats a token | bits a byte |
|---|---|---|---|
{table}

Expert load on held-out text, over all five expert layers: the busiest expert of a layer has at most {busiest:.2f} and
the idlest at least {idlest:.2f} of its layer's mean.
"""


def _positions(measured: Mapping[str, Any]) -> str:
    spans = measured["by_position"]
    rows = "\n".join(
        f"| {span['from']:,} to {span['to']:,} | {span['nats_per_token']:.3f} | {span['short_nats_per_token']:.3f} "
        f"| {span['num_tokens']:,} |"
        for span in spans
    )
    helped_to = max(span["to"] for span in spans if span["nats_per_token"] <= span["short_nats_per_token"] + 1e-4)
    return f"""
## Positions

Trained at up to 4,096 tokens; YaRN (factor {YARN_FACTOR:g} over {ORIGINAL_POSITIONS:,}) extends the positions to
{int(ORIGINAL_POSITIONS * YARN_FACTOR):,}, so that long-context serving can be exercised. Long range understanding is
not claimed. Loss by position in sequences of {spans[-1]["to"]:,} tokens of held-out code laid end to end:

| positions | nats a token | the same tokens in sequences of 1,024 | tokens |
|---|---|---|---|
{rows}

Rows are other text each, so compare along a row: where the first number is the larger, the longer context hurts.
Here it helps up to position {helped_to:,} and hurts beyond; past {spans[-1]["to"]:,} nothing was measured.
"""


def _writing(measured: Mapping[str, Any]) -> str:
    functions = measured["functions"]
    return f"""
## Does it write Python?

For {functions["num_functions"]} functions of the held-out modules, greedy,
at most {functions["max_new_tokens"]} tokens:

| prompt | share |
|---|---|
| asked in a chat: the whole answer parses | {functions["answers_python_frac"]:.0%} |
| asked in a chat: the answer ends by itself | {functions["answers_ended_frac"]:.0%} |
| given header and docstring: a body follows, and the function parses | {functions["bodies_python_frac"]:.0%} |
"""


def _samples(measured: Mapping[str, Any]) -> str:
    blocks = "\n\n".join(f"````text\n{sample['prompt']}⟦{sample['text']}⟧\n````" for sample in measured["samples"])
    return f"""
## Samples

As they came, at temperature 0.7 and top-p 0.95, at most 160 tokens; the model's part stands between ⟦ and ⟧.

{blocks}
"""


def _reproducing() -> str:
    return """
## Use and licence

`AutoModelForCausalLM.from_pretrained` loads the folder; so does any engine that reads DeepSeek-V3 checkpoints. Put
`<|begin|>` in front of a document; `encode` adds nothing by itself. End a prompt of code before a line break, not
after it: the break and the next line's indentation are one token. Chats: `<|user|>` question `<|assistant|>` answer
`<|end|>`, as the chat template renders them. `<|mask|>` and `<|reserved_0|>` to `<|reserved_9|>` were never trained.

Weights and card: Apache-2.0. To make it again: `python -m training.embedded.train --out RUN`, then
`python -m training.embedded.export --run RUN --to FOLDER` and `python -m training.embedded.card --run RUN --model
FOLDER`, from Deepdraft's repository (`training/README.md`). Another Python version, or another CPU's rounding, gives
another file of the same quality.
"""
