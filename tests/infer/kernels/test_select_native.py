import pytest
import torch

from deepdraft.infer.kernels import select
from deepdraft.infer.kernels.native_backend import missing
from deepdraft.infer.kernels.select import AUTO, attention_backend, fallback_notice

CPU = torch.device("cpu")


@pytest.mark.skipif(missing() is not None, reason=f"no native attention: {missing()}")
def test_auto_is_native_where_it_was_built():
    assert attention_backend(AUTO, CPU).name == "native"
    assert fallback_notice(CPU) is None


def test_auto_is_torch_where_it_was_not_and_one_line_says_why(monkeypatch):
    monkeypatch.setattr(select, "missing", lambda: "it was not built with the package")
    assert attention_backend(AUTO, CPU).name == "torch"
    assert fallback_notice(CPU) == (
        "attention and feed-forward by torch, which is slower: no native library, it was not built with the package "
        "(python -m deepdraft.infer.kernels.native.build)"
    )


def test_auto_on_another_device_is_not_native():
    assert attention_backend(AUTO, torch.device("meta")).name == "torch"
    assert fallback_notice(torch.device("meta")) is None
