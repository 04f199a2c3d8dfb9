"""The inference stack: a DDTree engine in Python on torch, served over the OpenAI API by `deepdraft serve`.

Nothing is imported here: torch loads when a module that needs it is imported.

Floors, top first; a module imports only from floors below its own (held by a contract in pyproject.toml):

    server                                          ASGI application, protocol, metrics, the engine's thread
    engine                                          step(): schedule -> run -> sample -> commit
    scheduler | runner | sampler | commit           who runs; forward passes; tokens from logits; where output ends
    page_ledger | noise                             pages between pool, requests and radix cache; keyed randomness
    sequence | pool_size | engine_stats             how far a request is; the pool's size; the state now
    step_record | settings
    models                                          deepseek_v3 (MLA + MoE), llama and qwen3 (GQA)
    layers | checkpoint | batch                     a model's parts; weights and configs from disk; one pass's tokens
    tokenizer | request                             text <-> tokens; what was asked and what comes back
    kv                                              page pool, page tables, radix cache
    kernels                                         attention over paged KV: one signature, several back ends
    config | memory                                 the shape of a model; what the machine has free
    errors
"""
