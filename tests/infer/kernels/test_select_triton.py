import subprocess
import sys

import pytest
import torch

from deepdraft.errors import UsageError
from deepdraft.infer.kernels.select import attention_backend


def test_without_a_gpu_it_is_refused():
    with pytest.raises(UsageError, match="runs on a GPU, not on cpu") as refused:
        attention_backend("triton", torch.device("cpu"))
    assert refused.value.hint == "choose torch"


def test_without_triton_it_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "deepdraft.infer.kernels.triton_backend", raising=False)
    with pytest.raises(UsageError, match="triton is not installed"):
        attention_backend("triton", torch.device("cuda"))


def test_choosing_another_does_not_import_triton():
    code = (
        "import sys, torch; from deepdraft.infer.kernels.select import attention_backend; "
        "attention_backend('torch', torch.device('cpu')); sys.exit('triton' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
