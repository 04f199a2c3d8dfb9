"""Connects the prompt maker to the server at hand: which of its answers can count tokens.

Best first: token ids where the route takes them, the server's count of a whole chat prompt, its tokenize endpoint, a
local tokenizer, and last the usage of tiny requests. A tokenizer that the user names goes before the server's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from deepdraft.adapters.adapter import Adapter
from deepdraft.bench.counting import Counter, EndpointCounter, IdRoute, LocalTokenizer, UsageCounter
from deepdraft.bench.prompt import MAX_TRIED_LEN, PromptMaker
from deepdraft.bench.text import text_source
from deepdraft.errors import RequestFailed, UsageError
from deepdraft.records import SweepSpec

_PROBE_LIMIT_S = 600.0

TextTokenizer = Callable[[str], Awaitable[int]]


async def prompt_maker(spec: SweepSpec, adapter: Adapter) -> PromptMaker:
    """The maker of this sweep's prompts; chooses the endpoint where token ids are asked for.

    Raises UsageError when ids are asked for and can't be had, or when nothing counts.
    """
    if spec.prompt_form == "ids" and adapter.endpoint == "chat":
        if "completions" not in adapter.capabilities.endpoints:
            raise UsageError("token-id prompts need the completions endpoint, which this server lacks")
        adapter.use("completions")
    return PromptMaker(
        text_source(spec.text),
        seed=spec.seed,
        probe=await _usage_counter(adapter),
        counter=await _cheap_counter(spec, adapter),
        id_route=_id_route(spec, adapter),
        max_probe_len=_max_probe_len(adapter),
    )


async def output_tokenizer(spec: SweepSpec, adapter: Adapter) -> tuple[str, TextTokenizer] | None:
    """Who counts the tokens of generated text, where the server does not say: a name, and a function."""
    if spec.tokenizer is not None:
        tokenizer = LocalTokenizer(spec.tokenizer)
        return tokenizer.source, tokenizer.count
    if adapter.capabilities.tokenizes == "yes":
        return "server tokenize endpoint", _num_ids(adapter)
    return None


def _max_probe_len(adapter: Adapter) -> int:
    """The longest probe: not longer than what the server takes, with room for its one token."""
    found = adapter.capabilities
    limits = [limit - 1 for limit in (found.max_context_len, found.kv_pool_tokens, found.max_prompt_len) if limit]
    return min([MAX_TRIED_LEN, *limits])


async def _usage_counter(adapter: Adapter) -> UsageCounter | None:
    """None when the server reports no prompt tokens."""

    async def probe(text: str) -> int:
        num_tokens = await _prompt_tokens(adapter, text)
        if num_tokens is None:
            raise RequestFailed("the server stopped reporting how many prompt tokens it counted")
        return num_tokens

    is_reported = await _prompt_tokens(adapter, adapter.probe_prompt()) is not None
    return UsageCounter(probe) if is_reported else None


async def _prompt_tokens(adapter: Adapter, prompt: str | list[int]) -> int | None:
    trace = await adapter.probed(prompt, limit_s=_PROBE_LIMIT_S)
    return trace.usage.prompt_tokens if trace.usage is not None else None


async def _cheap_counter(spec: SweepSpec, adapter: Adapter) -> Counter | None:
    if spec.tokenizer is not None:
        return LocalTokenizer(spec.tokenizer)
    if await adapter.count_prompt(adapter.probe_prompt()) is not None:

        async def count_prompt(text: str) -> int:
            num_tokens = await adapter.count_prompt(text)
            if num_tokens is None:
                raise RequestFailed("the server's tokenize endpoint stopped answering")
            return num_tokens

        return EndpointCounter(count_prompt, includes_template=True)
    if adapter.capabilities.tokenizes == "yes":
        return EndpointCounter(_num_ids(adapter))
    return None


def _num_ids(adapter: Adapter) -> TextTokenizer:
    async def count(text: str) -> int:
        return len(await _ids(adapter, text))

    return count


async def _ids(adapter: Adapter, text: str) -> Sequence[int]:
    ids = await adapter.tokenize(text)
    if ids is None:
        raise RequestFailed("the server's tokenize endpoint stopped answering")
    return ids


def _id_route(spec: SweepSpec, adapter: Adapter) -> IdRoute | None:
    if spec.prompt_form == "text" or adapter.endpoint == "chat":
        return None
    can = adapter.capabilities.token_id_prompts == "yes" and adapter.capabilities.tokenizes == "yes"
    if not can:
        if spec.prompt_form == "ids":
            raise UsageError(
                "this server can't take prompts of token ids, or does not tokenize", hint="use --prompt-form text"
            )
        return None

    async def probe(ids: Sequence[int]) -> int:
        num_tokens = await _prompt_tokens(adapter, list(ids))
        if num_tokens is None:
            raise RequestFailed("the server reports no prompt tokens for a prompt of token ids")
        return num_tokens

    async def tokenize(text: str) -> Sequence[int]:
        return await _ids(adapter, text)

    return IdRoute(tokenize=tokenize, probe=probe)
