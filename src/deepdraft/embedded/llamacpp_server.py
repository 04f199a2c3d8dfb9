"""The child process behind `--embedded llamacpp`: llama.cpp's HTTP server, until standard input closes.

Run as `python -m deepdraft.embedded.llamacpp_server --model FILE.gguf`. Prints one line, `url
http://127.0.0.1:PORT`, once the model is loaded; the engine's own log goes to standard error. Tied to its parent by
standard input, so that it can't outlive a parent that was killed.
"""

from __future__ import annotations

import argparse
import socket
import sys


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--context-len", type=int, default=8192)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--host-cache-mib", type=int, default=0)
    parser.add_argument("--no-cache-prompt", action="store_true")
    parser.add_argument("--float32-cache", action="store_true")
    parser.add_argument("--draft", choices=("none", "ngram", "self"), default="none")
    parser.add_argument("--synthetic-acceptance-len", type=float)
    return parser.parse_args()


def main() -> int:
    """Serve until standard input closes."""
    arguments = _arguments()
    import xllamacpp  # imported late: --help must not load the engine

    params = xllamacpp.CommonParams()
    params.model.path = arguments.model
    params.model_alias = {"smollm2-135m-instruct"}  # a set: every name the server answers to
    params.port = arguments.port or _free_port()
    params.n_ctx = arguments.context_len * arguments.slots
    params.n_parallel = arguments.slots
    params.cpuparams.n_threads = arguments.threads
    params.cpuparams_batch.n_threads = arguments.threads
    params.endpoint_metrics = True
    params.endpoint_props = True
    params.endpoint_slots = True
    params.cache_prompt = not arguments.no_cache_prompt
    params.cache_ram_mib = arguments.host_cache_mib
    if arguments.float32_cache:
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    if arguments.draft == "self":
        params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        params.speculative.draft.mparams.path = arguments.model
        params.speculative.draft.n_max = 5
        if arguments.synthetic_acceptance_len is not None:
            params.speculative.synth_len = arguments.synthetic_acceptance_len
    elif arguments.draft == "ngram":
        params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
    server = xllamacpp.Server(params)
    print(f"url {server.listening_address}", flush=True)
    sys.stdin.buffer.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
