"""The inference stack: a DDTree engine in Python on torch, served over the OpenAI API by `deepdraft serve`.

Nothing is imported here: torch loads when a module that needs it is imported.

Floors, top first; a module imports only from floors below its own (held by a contract in pyproject.toml):

    server | drafter_training | components          ASGI application, protocol, metrics; training of drafters;
                                                    benchmarks of parts, `deepdraft bench`
    engine                                          step(): schedule -> draft -> run -> choose -> compact -> commit
    speculation                                     the drafts of a step: drafted, built, cut
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
    control                                         where drafting pays: costs, acceptance, who drafts (no torch)
    kernels                                         attention over paged KV: one signature, several back ends
    config | memory                                 the shape of a model; what the machine has free
    errors
"""
