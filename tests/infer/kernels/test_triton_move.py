import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from interpreted import WHY_SKIPPED, interpreter

if WHY_SKIPPED:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)


@pytest.fixture(scope="module")
def triton():
    with interpreter() as running:
        yield running


def _pool(num_slots: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Latent rows, keys and values of other layers, of different widths."""
    shapes = ((1, 80), (2, 16), (2, 24), (1, 200))
    return [torch.randn(num_slots, *shape).to(dtype) for shape in shapes]


def _moved(tensors, sources, targets):
    results = [tensor.clone() for tensor in tensors]
    for result, tensor in zip(results, tensors, strict=True):
        result[targets] = tensor[sources]
    return results


def _assert_equal(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


@settings(deadline=None, max_examples=10)
@given(st.data(), st.sampled_from((torch.float32, torch.bfloat16, torch.float16)))
def test_rows_arrive_in_every_tensor_though_sources_are_targets(triton, data, dtype):
    num_slots = 40
    slots = st.integers(0, num_slots - 1)
    targets = data.draw(st.lists(slots, min_size=1, max_size=20, unique=True))
    sources = data.draw(st.lists(slots, min_size=len(targets), max_size=len(targets)))
    tensors = _pool(num_slots, dtype)
    expected = _moved(tensors, sources, targets)
    _assert_equal(triton.move(tensors, torch.tensor(sources), torch.tensor(targets), None), expected)


def test_only_as_many_as_the_device_says_are_moved(triton):
    tensors = _pool(30, torch.float16)
    sources, targets = torch.arange(5, 25), torch.arange(20)
    _assert_equal(triton.move(tensors, sources, targets, 7), _moved(tensors, sources[:7], targets[:7]))
    _assert_equal(triton.move(tensors, sources, targets, 0), tensors)


def test_none_to_move_is_no_launch(triton):
    tensors, none = _pool(3, torch.float32), torch.tensor([], dtype=torch.int64)
    _assert_equal(triton.move(tensors, none, none, None), tensors)


def test_rows_of_an_odd_number_of_16_bit_words(triton):
    tensors = [torch.randn(9, 1, 7).to(torch.bfloat16), torch.randn(9, 2, 8).to(torch.bfloat16)]
    sources, targets = [3, 4], [4, 0]
    _assert_equal(
        triton.move(tensors, torch.tensor(sources), torch.tensor(targets), None), _moved(tensors, sources, targets)
    )


@pytest.mark.parametrize(
    ("tensors", "count", "why"),
    [
        ([torch.zeros(4, 2, 8)[:, :1]], 1, "contiguous"),
        ([torch.zeros(4, 1, 3, dtype=torch.int8)], 1, "16-bit"),
        ([torch.zeros(4, 1, 4)], 2000, "2000 rows"),
    ],
)
def test_what_cannot_be_moved_is_refused(triton, tensors, count, why):
    slots = torch.zeros(count, dtype=torch.int64)
    with pytest.raises(ValueError, match=why):
        triton.move(tensors, slots, slots, None)
