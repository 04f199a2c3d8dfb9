"""The recipe as plain values: what is read, how the model is shaped, how long and how fast it is trained.

Everything that decides the exported weights stands here, so that a run can be repeated from this file and a seed.
Leaves out all doing: text is read in `corpus`, weights are moved in `train`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

SEED = 20261129

# --- text -----------------------------------------------------------------------------------------------------------

HELD_OUT_MODULES: tuple[str, ...] = (
    "bisect.py",
    "calendar.py",
    "configparser.py",
    "csv.py",
    "dataclasses.py",
    "difflib.py",
    "fractions.py",
    "graphlib.py",
    "heapq.py",
    "json/",
    "queue.py",
    "sched.py",
    "shlex.py",
    "statistics.py",
    "textwrap.py",
    "tomllib/",
    "zoneinfo/",
)
"""Paths below the standard library that no training step and no vocabulary sees; a slash at the end: the folder."""

HELD_OUT_TOPICS: tuple[str, ...] = ("import", "lambda", "raise", "slicings", "strings", "truth")
"""Topics of `pydoc_data.topics` kept for evaluation; none shares three lines in a row with another topic."""

CHAT_SHARE = 0.12
"""Chats made from documented functions, as a share of the training text's bytes."""

# --- vocabulary -----------------------------------------------------------------------------------------------------

VOCAB_SIZE = 4096
BEGIN, END, SYSTEM, USER, ASSISTANT, MASK = (
    "<|begin|>",
    "<|end|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|mask|>",
)
SPECIAL_TOKENS: tuple[str, ...] = (
    BEGIN,
    END,
    SYSTEM,
    USER,
    ASSISTANT,
    MASK,
    *(f"<|reserved_{number}|>" for number in range(10)),
)
"""In the order of their ids, from 0. `<|mask|>` is never trained: a block-diffusion drafter will need it."""

CHAT_TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
{%- if message['role'] == 'system' -%}
<|system|>{{ message['content'] }}
{%- elif message['role'] == 'user' -%}
<|user|>{{ message['content'] }}
{%- elif message['role'] == 'assistant' -%}
<|assistant|>{{ message['content'] }}<|end|>
{%- else -%}
{{- raise_exception('unknown role ' ~ message['role'] ~ ': use system, user or assistant') -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|assistant|>
{%- endif -%}
"""

# --- model ----------------------------------------------------------------------------------------------------------

ORIGINAL_POSITIONS = 1024
YARN_FACTOR = 256.0
ROPE_THETA = 10000.0

MODEL_SHAPE: Mapping[str, object] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 192,
    "num_hidden_layers": 6,
    "first_k_dense_replace": 1,
    "intermediate_size": 512,
    "n_routed_experts": 16,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 96,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    # The two chosen experts' weights add up to 2, so that each weighs about as much as the shared one.
    "routed_scaling_factor": 2.0,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 96,
    "kv_lora_rank": 64,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
    "tie_word_embeddings": True,
    "rms_norm_eps": 1e-6,
    "num_nextn_predict_layers": 0,
}
"""Fields of Hugging Face's `DeepseekV3Config`; positions are added by `rope_parameters`."""


def rope_parameters(*, is_yarn: bool) -> dict[str, object]:
    """RoPE as Kimi K2's config has it when `is_yarn` (mscale and mscale_all_dim 1.0), else unscaled."""
    if not is_yarn:
        return {"rope_type": "default", "rope_theta": ROPE_THETA}
    return {
        "rope_type": "yarn",
        "rope_theta": ROPE_THETA,
        "factor": YARN_FACTOR,
        "original_max_position_embeddings": ORIGINAL_POSITIONS,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    }


def yarn_softmax_scale() -> float:
    """Scale of attention scores under YaRN: (0.1 ln factor + 1)^2 / sqrt(head dim) (arXiv 2309.00071, section 3.4).

    It holds from the first step, so that switching the frequencies is the only change at the last stage.
    """
    nope, rope = MODEL_SHAPE["qk_nope_head_dim"], MODEL_SHAPE["qk_rope_head_dim"]
    assert isinstance(nope, int) and isinstance(rope, int)
    return float((0.1 * math.log(YARN_FACTOR) + 1.0) ** 2 * (nope + rope) ** -0.5)


# --- schedule -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stage:
    """One part of the run: sequences of `sequence_len` tokens, up to `until_frac` of the run's tokens."""

    sequence_len: int
    until_frac: float
    is_yarn: bool = False


@dataclass(frozen=True, slots=True)
class Recipe:
    """How long, how fast and in which order. Learning rates are peaks."""

    seed: int = SEED
    total_tokens: int = 12_000_000
    batch_tokens: int = 4096
    stages: tuple[Stage, ...] = (Stage(512, 0.55), Stage(1024, 0.85), Stage(4096, 1.0, is_yarn=True))
    warmup_frac: float = 0.02
    muon_lr: float = 6e-3
    adamw_lr: float = 3e-3
    weight_decay: float = 0.1
    router_bias_rate: float = 5e-3
    max_grad_norm: float = 1.0
    matmul_dtype: str = "bfloat16"
    """Matrix products over float32 weights. On CPUs without AVX512-BF16 or AMX "float32" is far faster."""

    def num_steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.total_tokens // self.batch_tokens

    def stage_index(self, step: int) -> int:
        """Index of the stage that step number `step` (from 0) belongs to."""
        done_frac = step / self.num_steps()
        return next(index for index, stage in enumerate(self.stages) if done_frac < stage.until_frac)

    def first_step(self, stage_index: int) -> int:
        """Number of the first step of a stage."""
        if stage_index == 0:
            return 0
        return math.ceil(self.stages[stage_index - 1].until_frac * self.num_steps())

    def lr_factor(self, step: int) -> float:
        """Share of the peak learning rate at a step: linear warm-up, then a straight line to zero."""
        warmup_steps = max(1, round(self.warmup_frac * self.num_steps()))
        rising = (step + 1) / warmup_steps
        falling = (self.num_steps() - step) / max(1, self.num_steps() - warmup_steps)
        return min(1.0, rising, falling)
