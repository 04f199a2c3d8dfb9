"""The inference stack: a DDTree engine in Python on torch, served over the OpenAI API by `deepdraft serve`.

Nothing is imported here: torch loads when a module that needs it is imported.

Floors, top first; a module imports only from floors below its own (held by a contract in pyproject.toml):

    server | drafter_training                       ASGI application, protocol, metrics; training of drafters
    engine                                          step(): schedule -> draft -> run -> choose -> compact -> commit
    speculation                                     who drafts in a step, and the trees
    verification                                    what the target makes of them
    scheduler | runner | sampler | commit           who runs; forward passes; tokens from logits; where output ends
    page_ledger                                     pages between pool, requests and radix cache
    sequence | pool_size | engine_stats             how far a request is; the pool's size; the state now
    step_record | settings
    drafters                                        dflash (block diffusion), ngram (prompt lookup)
    models                                          deepseek_v3 (MLA + MoE), llama and qwen3 (GQA)
    layers | checkpoint | batch                     a model's parts; weights and configs from disk; one pass's tokens
    tokenizer | request                             text <-> tokens; what was asked and what comes back
    kv | tree | noise                               pages, radix cache; draft trees; randomness keyed by position
    kernels                                         attention over paged KV: one signature, several back ends
    config | memory                                 the shape of a model; what the machine has free
    errors
"""
