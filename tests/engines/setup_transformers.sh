#!/usr/bin/env bash
# Sets up `transformers serve` (CPU) as a real server for Deepdraft's opt-in tests,
# and the tiny random Llama checkpoint that all three engines serve.
#
# Usage: setup_transformers.sh TARGET_FOLDER
# Creates TARGET_FOLDER/transformers (virtual environment) and TARGET_FOLDER/tiny-llama (model).
# Needs Python 3.11 (set PYTHON to name another interpreter) and about 2 GB of disk.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/shared_setup.sh" transformers "$@"

"${pip[@]}" torch==2.13.0 'transformers[serving]==5.24.0' gguf==0.19.0 \
    -c "$here/constraints_transformers.txt"

make_tiny_model
"$venv/bin/transformers" version
echo "transformers is ready in $venv, the model in $target/tiny-llama"
