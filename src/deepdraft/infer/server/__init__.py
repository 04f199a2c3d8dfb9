"""The OpenAI-compatible server: HTTP in, tokens out of an engine that runs in a thread of its own.

    run                          uvicorn, signals, draining, the end of the process
    app | load                   routes put together; a model on disk made into a `Service`
    completions | chat | tokenize | state_routes       one module per family of routes
    answering | event_stream     an answer whole or streamed, and clients that go away
    worker | engine_thread | generation                the engine's thread, and requests on their way through it
    protocol | sampling | unsupported | prompt         bodies in
    logprobs | refusal                                 answers and errors out
    metrics | access | body

Nothing is imported here. torch is imported by `load` alone.
"""
