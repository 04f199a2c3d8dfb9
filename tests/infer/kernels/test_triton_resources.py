"""The kernels compiled ahead of time for each architecture: none spills, all fit. Not under the interpreter, so in a
process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from interpreted import WHY_SKIPPED

if WHY_SKIPPED:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)

SCRIPT = Path(__file__).parents[3] / "scripts" / "compile_kernels.py"
NUM_KERNELS = 11


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100", "sm_120", "gfx942"])
def test_kernels_fit_the_architecture(arch):
    environ = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, SCRIPT, "--arch", arch, "--json"],
        capture_output=True,
        text=True,
        env={**environ, "TRITON_DEFAULT_FP_FUSION": "1"},
        check=False,
    )
    assert done.stdout, done.stderr
    kernels = json.loads(done.stdout)
    assert len(kernels) == NUM_KERNELS
    assert [kernel for kernel in kernels if not kernel["fits"]] == []
    assert done.returncode == 0
    for kernel in kernels:
        assert kernel["spilled"] == 0, kernel
        assert kernel["shared_bytes"] <= kernel["limit_bytes"], kernel
