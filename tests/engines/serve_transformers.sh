#!/usr/bin/env bash
# Serves the tiny model with `transformers serve` on the CPU; ready when GET /health answers 200.
#
# Usage: serve_transformers.sh TARGET_FOLDER PORT [EXTRA_FLAGS...]
# TARGET_FOLDER is the one that setup_transformers.sh filled.
# Add `--continuous-batching --cb-num-blocks 2048 --cb-block-size 32` to meet a server that reuses
# prefixes without reporting it.
set -euo pipefail

if [ $# -lt 2 ]; then
    echo "usage: $0 TARGET_FOLDER PORT [EXTRA_FLAGS...]" >&2
    exit 2
fi
target="$(cd "$1" && pwd)"
port="$2"
shift 2

# Never ask a model hub: everything needed lies in the folder.
export HF_HUB_OFFLINE=1
# The path given is the model's name on the server: from inside the folder it is plain tiny-llama.
cd "$target"
exec "$target/transformers/bin/transformers" serve tiny-llama \
    --host 127.0.0.1 --port "$port" --device cpu --dtype float32 "$@"
