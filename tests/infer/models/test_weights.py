"""The dtype that a feed-forward's matrices are kept in."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from deepdraft.errors import UsageError
from deepdraft.infer.kernels.native_backend import missing
from deepdraft.infer.layers.mlp import Mlp
from deepdraft.infer.models.stack import mlp
from deepdraft.infer.models.weights import Weights

CPU = torch.device("cpu")
IS_BUILT = missing() is None
NAMES = ("gate_proj.weight", "up_proj.weight", "down_proj.weight")


@dataclass(frozen=True)
class Tensors:
    """A checkpoint in memory."""

    by_name: dict[str, Tensor]

    def tensor(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        if name not in self.by_name:
            raise UsageError(f"there is no tensor {name}")
        return self.by_name[name].to(dtype or self.by_name[name].dtype)


def stored(dtype: torch.dtype, *, down_dtype: torch.dtype | None = None) -> Tensors:
    generator = torch.Generator().manual_seed(0)
    sizes = ((6, 8), (6, 8), (8, 6))
    tensors = [torch.randn(size, generator=generator).to(dtype) for size in sizes]
    tensors[2] = tensors[2].to(down_dtype or dtype)
    return Tensors({f"mlp.{name}": tensor for name, tensor in zip(NAMES, tensors, strict=True)})


def loaded(source: Tensors, dtype: torch.dtype, stored_dtype: torch.dtype | None, device: torch.device = CPU) -> Mlp:
    return mlp(Weights(source, dtype, device, stored_dtype=stored_dtype).under("mlp."), 8, 6)


@pytest.mark.skipif(not IS_BUILT, reason=f"no native library: {missing()}")
@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_rows", [1, 7, 3000])
def test_matrices_stay_as_they_are_stored_and_nothing_else_changes(narrow: torch.dtype, num_rows: int) -> None:
    """Natively and, for so many rows, by torch: to the last bit what widened matrices give."""
    source = stored(narrow)
    kept, wide = loaded(source, torch.float32, narrow), loaded(source, torch.float32, None)
    assert kept.gate_up.dtype == kept.down.dtype == narrow
    assert wide.gate_up.dtype == wide.down.dtype == torch.float32
    x = torch.randn(num_rows, 8, generator=torch.Generator().manual_seed(1))
    assert kept(x).dtype == torch.float32
    assert torch.equal(kept(x), wide(x))
    assert torch.equal(kept.by_torch(x), wide.by_torch(x))


@pytest.mark.parametrize(
    ("source", "dtype", "stored_dtype", "device"),
    [
        pytest.param(stored(torch.bfloat16), torch.float32, None, CPU, id="nobody said how it is stored"),
        pytest.param(stored(torch.bfloat16), torch.float32, torch.float16, CPU, id="stored otherwise than said"),
        pytest.param(stored(torch.float32), torch.float32, torch.float32, CPU, id="stored as it is computed"),
        pytest.param(stored(torch.bfloat16), torch.float64, torch.bfloat16, CPU, id="float64 is torch's"),
        pytest.param(stored(torch.bfloat16), torch.float32, torch.bfloat16, torch.device("meta"), id="no CPU"),
        pytest.param(
            stored(torch.bfloat16, down_dtype=torch.float32),
            torch.float32,
            torch.bfloat16,
            CPU,
            id="one is wide, and must not be rounded",
        ),
    ],
)
def test_else_matrices_are_in_the_dtype_of_the_computation(
    source: Tensors, dtype: torch.dtype, stored_dtype: torch.dtype | None, device: torch.device
) -> None:
    made = loaded(source, dtype, stored_dtype, device)
    assert made.gate_up.dtype == made.down.dtype == dtype


def test_without_the_native_library_matrices_are_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch would widen them again at every call."""
    monkeypatch.setattr("deepdraft.infer.models.weights.widens_weights", lambda *_: False)
    assert loaded(stored(torch.bfloat16), torch.float32, torch.bfloat16).down.dtype == torch.float32


def test_a_missing_matrix_is_named() -> None:
    source = stored(torch.bfloat16)
    del source.by_name["mlp.up_proj.weight"]
    with pytest.raises(UsageError, match=r"mlp\.up_proj\.weight"):
        loaded(source, torch.float32, torch.bfloat16)
