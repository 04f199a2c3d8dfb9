"""The errors of the inference stack: one tree under deepdraft.errors. Each builds its own line from the numbers it is
about, keeps them as attributes, and says in `hint` what to do.

    DeepdraftError
    ├── UsageError
    │   └── UnsupportedModel         a model this stack can't run; names the field of its config that made it so
    ├── RequestRefused               one request can't be taken; the engine and all other requests go on
    │   ├── InvalidRequest           a parameter without sense; names it
    │   ├── ContextTooLong           prompt and max_tokens beyond the context limit
    │   ├── PoolTooSmall             within the context limit, but it would never fit the KV pool
    │   ├── QueueFull                too many wait already: come back later
    │   └── ShuttingDown             the server takes no more requests
    ├── PoolExhausted                no free pages now; the scheduler evicts, preempts or waits
    └── LawBroken                    the engine contradicts itself: a fault of ours, never of the user's
"""

from __future__ import annotations

from deepdraft.errors import DeepdraftError, UsageError


class UnsupportedModel(UsageError):
    """A model this stack can't run. `field` is the config's own name (`rope_scaling.type`), `value` what stood there;
    None where the field is missing."""

    def __init__(self, field: str, value: object = None, *, reason: str, hint: str | None = None) -> None:
        stated = "is missing" if value is None else f"is {value!r}"
        super().__init__(
            f"unsupported model: {field} {stated}: {reason}",
            hint=hint or "deepdraft serves models of the forms deepseek_v3 (Kimi K2.x), llama and qwen3",
        )
        self.field = field
        self.value = value


class RequestRefused(DeepdraftError):
    """One request can't be taken. The engine and all other requests go on."""


class InvalidRequest(RequestRefused):
    """A parameter without sense (an empty prompt, a token id beyond the vocabulary). `parameter` is its API name."""

    def __init__(self, parameter: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.parameter = parameter


class ContextTooLong(RequestRefused):
    """Prompt and max_tokens together are beyond the context limit."""

    def __init__(self, *, num_prompt_tokens: int, max_tokens: int, max_context_len: int) -> None:
        super().__init__(
            f"{num_prompt_tokens} prompt tokens + {max_tokens} to generate = {num_prompt_tokens + max_tokens}, "
            f"beyond the context limit of {max_context_len}",
            hint="shorten the prompt or lower max_tokens; the limit is set by --max-context-len",
        )
        self.num_prompt_tokens = num_prompt_tokens
        self.max_tokens = max_tokens
        self.max_context_len = max_context_len


class PoolTooSmall(RequestRefused):
    """Within the context limit, but the KV pool couldn't hold the request even with nothing else in it."""

    def __init__(self, *, num_tokens: int, kv_pool_tokens: int, max_context_len: int) -> None:
        super().__init__(
            f"the request needs {num_tokens} tokens of KV cache, the pool holds {kv_pool_tokens} "
            f"(the context limit of {max_context_len} would allow it)",
            hint="shorten the prompt, lower max_tokens, or start the server with a larger --kv-pool-tokens",
        )
        self.num_tokens = num_tokens
        self.kv_pool_tokens = kv_pool_tokens
        self.max_context_len = max_context_len


class QueueFull(RequestRefused):
    """As many requests wait as are allowed to."""

    def __init__(self, *, num_waiting: int, max_waiting_requests: int, retry_after_s: float) -> None:
        super().__init__(
            f"{num_waiting} requests are waiting, the limit is {max_waiting_requests}",
            hint=f"try again in {retry_after_s:g} s",
        )
        self.num_waiting = num_waiting
        self.max_waiting_requests = max_waiting_requests
        self.retry_after_s = retry_after_s


class ShuttingDown(RequestRefused):
    """The server finishes what it has and takes nothing more."""

    def __init__(self) -> None:
        super().__init__("the server is shutting down", hint="send the request to another server")


class PoolExhausted(DeepdraftError):
    """Fewer pages are free than were asked for; none was taken."""

    def __init__(self, *, num_pages: int, num_free_pages: int, num_pool_pages: int) -> None:
        super().__init__(
            f"{num_pages} KV pages wanted, {num_free_pages} of {num_pool_pages} are free",
            hint="start the server with a larger --kv-pool-tokens or fewer --max-running-requests",
        )
        self.num_pages = num_pages
        self.num_free_pages = num_free_pages
        self.num_pool_pages = num_pool_pages


class LawBroken(DeepdraftError):
    """The engine contradicts itself: a page freed twice, pages lost, tokens miscounted. Results can't be trusted."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="this is a fault of deepdraft: stop the server and report the line above")
