import pytest
import torch

from deepdraft.errors import UsageError
from deepdraft.infer.kernels.native_backend import missing
from deepdraft.infer.kernels.select import BACKENDS, attention_backend

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", sorted(set(BACKENDS) - {"triton"} - ({"native"} if missing() else set())))
def test_a_back_end_answers_to_its_name(name):
    assert attention_backend(name, CPU).name == name


def test_without_a_name_the_fast_one_is_taken():
    assert attention_backend(None, CPU).name == ("torch" if missing() else "native")


def test_an_unknown_name_is_refused_and_the_known_ones_are_named():
    with pytest.raises(UsageError, match="'flash'") as refused:
        attention_backend("flash", CPU)
    assert refused.value.hint == "known: auto, native, reference, torch, triton"
