"""One mixture-of-experts layer: router, chosen experts, shared expert, for few rows as decode and verify have them.

Ceiling: the weights of the experts that the rows chose, of the shared one and of the router at the rate of reading as
many bytes again and again, or the multiplications at that of a matrix product, whichever takes longer. Peers:
transformers' DeepseekV3MoE where it is installed, and a loop over the experts in plain torch; both with the same
weights and held to the same output before anything is measured.

Kimi K2's layer takes 67 GB in float32: what is run has its widths divided by a power of two and as many experts as
the memory allowed; the facts of each case say which. Leaves out experts that are quantised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from deepdraft.errors import DeepdraftError
from deepdraft.infer.checkpoint.embedded import embedded_model_path
from deepdraft.infer.checkpoint.open import open_checkpoint
from deepdraft.infer.components.clock import Machine
from deepdraft.infer.components.moe_weights import MoeLayer, expert_bytes
from deepdraft.infer.components.turns import Candidate, Timing, Watch, cases_of
from deepdraft.infer.config import MoeShape
from deepdraft.infer.memory import available_bytes
from deepdraft.records.component import ComponentCase

KIMI_HIDDEN_SIZE = 7168
KIMI_MOE = MoeShape(
    num_experts=384,
    num_experts_per_tok=8,
    moe_intermediate_size=2048,
    num_shared_experts=1,
    num_groups=1,
    num_groups_per_tok=1,
    norm_topk_prob=True,
    routed_scaling_factor=2.827,
    num_dense_layers=0,
)
"""Kimi K2's config.json."""
DEFAULT_MAX_BYTES = 1 << 29
MIN_EXPERTS = 32
"""Of the scaled layer: fewer, and a token would choose a quarter of all."""
TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeSettings:
    """What to run."""

    row_counts: tuple[int, ...] = (1, 8, 17, 64)
    shapes: tuple[str, ...] = ("embedded", "kimi")
    max_bytes: int | None = None
    """Of the layer's weights, of which each side has its own. None: 512 MiB, or an eighth of what is free."""
    timing: Timing


def moe_cases(settings: MoeSettings, watch: Watch) -> Iterator[ComponentCase]:
    """Each case as it is measured. Raises DeepdraftError where a peer's output is another."""
    return cases_of(_candidates(settings, watch), settings.timing, watch)


def embedded_layer() -> MoeLayer:
    """The embedded model's shape. Raises UsageError where the model is missing from the installation."""
    config = open_checkpoint(embedded_model_path()).config
    assert config.moe is not None
    return MoeLayer(config.hidden_size, replace(config.moe, num_dense_layers=0))


def scaled_kimi_layer(max_bytes: int) -> MoeLayer:
    """Kimi K2's layer with its widths divided by the least power of two with which MIN_EXPERTS fit, and as many
    experts as then do, by eights."""
    divisor = 1
    hidden, width = KIMI_HIDDEN_SIZE, KIMI_MOE.moe_intermediate_size
    while MIN_EXPERTS * expert_bytes(hidden // divisor, width // divisor) > max_bytes and divisor < 128:
        divisor *= 2
    hidden, width = hidden // divisor, width // divisor
    num_fitting = max_bytes // expert_bytes(hidden, width) // 8 * 8
    num_experts = min(KIMI_MOE.num_experts, max(MIN_EXPERTS, num_fitting))
    return MoeLayer(hidden, replace(KIMI_MOE, num_experts=num_experts, moe_intermediate_size=width))


def _candidates(settings: MoeSettings, watch: Watch) -> Iterator[Candidate]:
    machine = Machine(rate_s=settings.timing.cell_s)
    for name in settings.shapes:
        watch.report(f"{name}: random weights")
        if name == "embedded":
            layer = embedded_layer()
        else:
            free = available_bytes(torch.device("cpu")) // 8
            layer = scaled_kimi_layer(settings.max_bytes or min(DEFAULT_MAX_BYTES, free))
        yield from _of_layer(name, layer, settings.row_counts, machine)


def _of_layer(name: str, layer: MoeLayer, row_counts: Sequence[int], machine: Machine) -> Iterator[Candidate]:
    ours = layer.ours()
    peers: dict[str, Callable[[Tensor], Tensor]] = {"torch loop": layer.torch_loop()}
    transformers = layer.transformers()
    if transformers is not None:
        peers = {"transformers": transformers, **peers}
    for num_rows in row_counts:
        x = torch.randn(num_rows, layer.hidden_size, generator=torch.Generator().manual_seed(num_rows))
        _hold_to_peers(ours, peers, x)
        yield _candidate(name, layer, x, ours, peers, machine)


def _candidate(
    name: str,
    layer: MoeLayer,
    x: Tensor,
    ours: Callable[[Tensor], Tensor],
    peers: dict[str, Callable[[Tensor], Tensor]],
    machine: Machine,
) -> Candidate:
    num_rows, shape = len(x), layer.shape
    num_hit = len({expert for row in layer.chosen(x)[0].tolist() for expert in row})
    num_bytes = float(
        (num_hit + shape.num_shared_experts) * layer.expert_bytes + shape.num_experts * layer.hidden_size * 4
    )
    weights_of_row = (shape.num_experts_per_tok + shape.num_shared_experts) * layer.expert_bytes // 4
    is_scaled = name == "kimi" and (layer.hidden_size, shape.num_experts) != (KIMI_HIDDEN_SIZE, KIMI_MOE.num_experts)
    return Candidate(
        name=f"{'kimi scaled' if is_scaled else name}, {num_rows} rows",
        facts={
            "hidden_size": layer.hidden_size,
            "moe_intermediate_size": shape.moe_intermediate_size,
            "num_experts": shape.num_experts,
            "num_experts_per_tok": shape.num_experts_per_tok,
            "num_experts_hit": num_hit,
            "num_rows": num_rows,
        },
        run=partial(ours, x),
        peers={peer: partial(run, x) for peer, run in peers.items()},
        work={"read": num_bytes, "matmul": 2.0 * num_rows * weights_of_row},
        rates={"read": partial(machine.read_bytes_s, num_bytes), "matmul": machine.matrix_flop_s},
        note=_scale_note(layer) if is_scaled else None,
    )


def _scale_note(layer: MoeLayer) -> str:
    shape = layer.shape
    return (
        f"kimi scaled: hidden {layer.hidden_size} of {KIMI_HIDDEN_SIZE}, inner {shape.moe_intermediate_size} of "
        f"{KIMI_MOE.moe_intermediate_size}, {shape.num_experts} of {KIMI_MOE.num_experts} experts: as much as the "
        "memory allowed"
    )


def _hold_to_peers(ours: Callable[[Tensor], Tensor], peers: dict[str, Callable[[Tensor], Tensor]], x: Tensor) -> None:
    with torch.inference_mode():
        expected = ours(x)
        for name, peer in peers.items():
            difference = (peer(x) - expected).abs().max().item()
            if not difference < TOLERANCE:
                raise DeepdraftError(f"the MoE layer's output for {len(x)} rows is {difference:g} off {name}'s")
