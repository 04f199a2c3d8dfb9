#!/usr/bin/env bash
# Serves the tiny model with SGLang on the CPU; ready when GET /health answers 200.
#
# Usage: serve_sglang.sh TARGET_FOLDER PORT [EXTRA_FLAGS...]
# TARGET_FOLDER is the one that setup_sglang.sh filled.
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
export SGLANG_USE_CPU_ENGINE=1

# --sleep-on-idle: otherwise the scheduler spins on a whole core while no request runs.
# --max-total-tokens bounds the KV cache: without it SGLang takes most of the machine's memory.
cd "$target"
exec "$target/sglang/bin/python" -m sglang.launch_server \
    --model-path "$target/tiny-llama" --served-model-name tiny-llama \
    --host 127.0.0.1 --port "$port" \
    --device cpu --dtype float32 --attention-backend torch_native --sampling-backend pytorch \
    --disable-cuda-graph --max-total-tokens 60000 --context-length 32768 \
    --chunked-prefill-size 2048 --enable-cache-report --enable-metrics --sleep-on-idle "$@"
