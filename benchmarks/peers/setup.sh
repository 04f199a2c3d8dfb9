#!/usr/bin/env bash
# Sets up the peer clients for `python -m benchmarks.peers --venvs DIR`: one virtual environment each, from the
# package index, and the tokenizer they all share.
#
# Usage: setup.sh DIR
# Creates DIR/vllm, DIR/sglang, DIR/llama-benchy and DIR/tiny-llama; what is there already is left alone.
# Needs Python 3.11 (set PYTHON to name another interpreter) and about 8 GB of disk: the two engines' clients come
# with the engines.
set -euo pipefail

if [ $# -ne 1 ]; then
    echo "usage: $0 DIR" >&2
    exit 2
fi
engines="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../tests/engines" && pwd)"
mkdir -p "$1"
target="$(cd "$1" && pwd)"

[ -x "$target/vllm/bin/python" ] || "$engines/setup_vllm.sh" "$target"
[ -x "$target/sglang/bin/python" ] || "$engines/setup_sglang.sh" "$target"
if [ ! -x "$target/llama-benchy/bin/llama-benchy" ]; then
    "${PYTHON:-python3}" -m venv "$target/llama-benchy"
    "$target/llama-benchy/bin/python" -m pip install --disable-pip-version-check --quiet llama-benchy==0.4.0
fi
echo "the peers are ready: python -m benchmarks.peers --venvs $target"
