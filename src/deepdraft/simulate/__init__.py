"""A server of known truth: an OpenAI-compatible HTTP server that obeys a stated physics.

Its prefill and step times, its committed lengths, its cache and its limits are given beforehand; every write is
logged with the time it really happened, and every confound known from real servers sits on a switch. What a client
measures here can therefore be compared with what was true. It runs no model and makes no claim about any real
engine's speed.

    spec        what the server is: physics, confounds, faults, surface
    patterns    ready specs, one for each known trap
    process     run it in a process of its own (`with running(spec) as server:`)
    server      run it in this event loop
    truth       what really happened, request by request
    options     its flags on the command line
"""
