"""Start-up logs as the engines write them, with figures of the reference deployment."""

from __future__ import annotations

ARGUMENTS = (
    "server_args=ServerArgs(model_path='/models/Kimi-K2.6', served_model_name='kimi-k2.6', context_length=200000, "
    "mem_fraction_static={fraction}, max_running_requests={requests}, chunked_prefill_size=8192, page_size=1, "
    "tp_size=8, dp_size=1, kv_cache_dtype='auto', attention_backend='triton', speculative_algorithm='DFLASH', "
    "speculative_num_draft_tokens=8, decode_log_interval=40, api_key=None)"
)


def sglang_log(
    fraction: float, tokens: int, reserve_gb: float, *, requests: int = 8, has_arguments: bool = True
) -> str:
    """SGLang 0.5.12 with a DFlash drafter, two of eight ranks: the drafter loads after the target's pool was made."""
    left_gb = 21.33 - tokens * 70_272 / 2**30
    lines = [
        "[2026-11-20 10:00:01] " + ARGUMENTS.format(fraction=fraction, requests=requests) if has_arguments else "",
        "[2026-11-20 10:00:30 TP1] Load weight begin. avail mem=93.75 GB",
        "[2026-11-20 10:00:30 TP0] Load weight begin. avail mem=93.73 GB",
        "[2026-11-20 10:06:10 TP0] Load weight end. elapsed=340.11 s, type=KimiK25ForConditionalGeneration, "
        "dtype=torch.bfloat16, avail mem=21.33 GB, mem usage=72.40 GB.",
        f"[2026-11-20 10:06:11 TP0] KV Cache is allocated. #tokens: {tokens}, "
        f"KV size: {tokens * 70_272 / 2**30:.2f} GB",
        f"[2026-11-20 10:06:11 TP0] Memory pool end. avail mem={left_gb:.2f} GB",
        f"[2026-11-20 10:06:12 TP0] Load weight begin. avail mem={left_gb:.2f} GB",
        f"[2026-11-20 10:06:30 TP0] Load weight end. elapsed=18.00 s, type=DFlashDraftModel, dtype=torch.bfloat16, "
        f"avail mem={left_gb - 1.31:.2f} GB, mem usage=1.31 GB.",
        f"[2026-11-20 10:06:31 TP0] KV Cache is allocated. #tokens: {tokens}, K size: 0.31 GB, V size: 0.31 GB",
        f"[2026-11-20 10:06:51 TP0] max_total_num_tokens={tokens}, chunked_prefill_size=8192, "
        f"max_prefill_tokens=16384, max_running_requests={requests}, context_len=200000, "
        f"available_gpu_mem={reserve_gb:.2f} GB",
    ]
    return "\n".join(line for line in lines if line) + "\n"


VLLM_LOG = (
    "INFO 11-20 10:00:00 [core.py:94] Initializing a V1 LLM engine (v0.33.0) with config: model='Qwen/Qwen3-8B', "
    "speculative_config=None, max_model_len=40960, gpu_memory_utilization=0.9, tensor_parallel_size=1\n"
    "INFO 11-20 10:01:00 [gpu_model_runner.py:1] Model loading took 15.27 GiB memory and 20.0 seconds\n"
    "INFO 11-20 10:01:10 [gpu_worker.py:1] Available KV cache memory: 66.71 GiB\n"
    "INFO 11-20 10:01:11 [kv_cache_utils.py:1] GPU KV cache size: 485,760 tokens, Maximum concurrency for 40,960 "
    "tokens per request: 11.86x\n"
    "INFO 11-20 10:01:30 [gpu_model_runner.py:2] Graph capturing finished in 9 secs, took 0.70 GiB\n"
)
