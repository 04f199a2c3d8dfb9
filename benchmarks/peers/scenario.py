"""What is done to the clients in the accuracy part: one server each, with a truth that can be read off.

One stream at a time, 5 ms a token (four tokens each 20 ms where a step commits four), so that the machine's own
noise stays small beside what a wrong definition does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from deepdraft.simulate.patterns import PATTERNS
from deepdraft.simulate.spec import Fault, SimulateSpec


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One server and how many requests it gets."""

    name: str
    """What the server does, as the table says it."""
    spec: SimulateSpec
    num_requests: int = 5
    context_len: int = 256
    decode_len: int = 96


TIMING: tuple[Scenario, ...] = (
    Scenario(name="plain: one token an event", spec=PATTERNS["plain"]),
    Scenario(name="4 tokens an event", spec=PATTERNS["four_tokens_an_event"]),
    Scenario(name="first event of 16 tokens, then 4", spec=PATTERNS["large_first_event"]),
    Scenario(name="role chunk at 5 ms, first token at 500 ms", spec=PATTERNS["early_role_chunk"]),
    Scenario(name="300 ms of silence before usage and [DONE]", spec=PATTERNS["late_usage"]),
    Scenario(name="48 tokens of reasoning, then the answer", spec=PATTERNS["reasoning_then_answer"]),
    Scenario(name="tool call", spec=PATTERNS["tool_calls"]),
    Scenario(name="words that re-tokenise to three", spec=PATTERNS["words_that_retokenise"]),
)

ERROR_IN_STREAM = Scenario(
    name="error object inside a 200 stream, every third request",
    # Short prompts are left in peace: they are a client's probes, not the requests that count.
    spec=SimulateSpec(faults=(Fault(kind="error_in_stream", every=3, after_tokens=24, min_prompt_len=200),)),
    num_requests=9,
    decode_len=48,
)

PREFIX_CACHE = Scenario(
    name="the same command twice, prefix cache on",
    spec=replace(PATTERNS["prefix_cache"], physics=replace(PATTERNS["prefix_cache"].physics, prefill_b_s=1 / 4200)),
    context_len=2048,
    decode_len=48,
)
"""2,048 tokens take 0.54 s cold."""
