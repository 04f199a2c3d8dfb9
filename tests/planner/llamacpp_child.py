"""A llama.cpp server in a process of its own: starts, answers one prompt, and prints what memory it took.

    python llamacpp_child.py '{"model": "FILE.gguf", "n_ctx": 4096, "prompt_len": 1000, ...}'

The engine's log goes to standard error; the last line of standard output is an object with `peak_bytes`. Other keys:
`n_parallel`, `kv_unified`, `n_ubatch`, `swa_full` as xllamacpp spells them, `cache_type` (f16, q8_0), `flash_attn`.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any


def main(asked: dict[str, Any]) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = asked["model"]
    params.port = _free_port()
    params.verbosity = 4  # from here on the log tells of caches and buffers
    params.cache_ram_mib = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    kind = {"f16": "GGML_TYPE_F16", "q8_0": "GGML_TYPE_Q8_0"}[asked.get("cache_type", "f16")]
    params.cache_type_k = params.cache_type_v = getattr(xllamacpp.ggml_type, kind)
    if asked.get("flash_attn") is False:
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    for name in ("n_ctx", "n_parallel", "kv_unified", "n_ubatch", "swa_full"):
        if name in asked:
            setattr(params, name, asked[name])
    server = xllamacpp.Server(params)
    prompt_len = asked.get("prompt_len", 0)
    if prompt_len:
        _answer(server.listening_address, prompt_len)
    print(json.dumps({"peak_bytes": _peak_bytes()}), flush=True)
    os._exit(0)  # the server's threads would wait for requests


def _answer(url: str, prompt_len: int) -> None:
    prompt = [index % 251 for index in range(prompt_len)]
    body = json.dumps({"prompt": prompt, "n_predict": 2, "cache_prompt": False}).encode()
    request = urllib.request.Request(url + "/completion", data=body, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        answer.read()


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
