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

source "$(dirname "${BASH_SOURCE[0]}")/shared_setup.sh" sglang "$@"

"${pip[@]}" --no-deps sglang==0.5.23

# SGLang's own list of requirements, less torch (already there), all that needs CUDA, and what
# serves images, sound and video only.
# pip then names those as missing in lines that begin with ERROR; they are expected.
requirements="$venv/sglang-requirements.txt"
requirements_of sglang \
    torch torchvision torchaudio torchcodec torch_memory_saver timm \
    tml-renderers deepseek-recipe smg-grpc-servicer modelscope \
    cuda-python flash-attn-4 flashinfer_python humming-kernels nvidia-cutlass-dsl \
    nvidia-mathdx nvidia-ml-py nvshmem4py-cu13 quack-kernels sgl-deep-ep \
    sgl-deep-gemm sgl-flash-mla sglang-kernel tilelang kernels \
    >"$requirements"
"${pip[@]}" torch==2.13.0 triton==3.9.0 -c "$here/constraints_sglang.txt" -r "$requirements"
"$venv/bin/python" "$here/make_sglang_stubs.py" \
    "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

make_tiny_model # gguf came with SGLang
echo "SGLang is ready in $venv, the model in $target/tiny-llama"
