"""Latencies, token times and token counts under every pattern of events, against what the server really wrote.

Truth: the server's own stamps on the same clock. TTFT: its first write with generated text minus the moment the
request was there. Token time: (last write - first write with text) / tokens that came after the first. What the
machine does to the server's schedule is therefore no error of the client.

Every pattern is served with a tokenize endpoint, as engines have one, and nothing else that helps to count. Servers
that offer usage alone leave a doubt by nature; there the doubt must be printed, which the guards' tests hold.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

from deepdraft.metrics import output_tokens, prompt_tokens, tpot_s, ttft_s
from deepdraft.records import Measurement, SweepSpec
from deepdraft.selftest.check import Check, Error, swept
from deepdraft.simulate import truth
from deepdraft.simulate.patterns import PATTERNS
from deepdraft.simulate.process import running
from deepdraft.simulate.spec import Physics, SimulateSpec
from deepdraft.simulate.truth import RequestTruth

PROMPT_LEN = 400
DECODE_LEN = 96
TTFT_TARGET_S = 0.003
BURST_TTFT_TARGET_S = 0.020
TPOT_TARGET_FRAC = 0.01
BURST = 32

_CHECKED = {
    "plain": "one token an event",
    "four_tokens_an_event": "4 tokens an event, 20 ms apart",
    "large_first_event": "16 tokens in the first event, then 4",
    "mixed_events": "1, 4, 2, 5 tokens an event",
    "token_bursts": "an event a token, in bursts of 4",
    "early_role_chunk": "role chunk 500 ms before the first token",
    "null_and_empty_events": "null and empty content first",
    "progress_events": "prompt progress first",
    "pings": "comments during prefill",
    "reasoning_then_answer": "48 reasoning tokens first",
    "reasoning_other_key": "the same under `reasoning`",
    "only_reasoning": "reasoning and no answer",
    "tool_calls": "arguments of a tool call",
    "words_that_retokenise": "words that tokenise 3x finer",
    "non_ascii": "characters of several bytes",
    "late_usage": "300 ms before usage and [DONE]",
    "usage_in_finish_chunk": "usage in the finish chunk",
    "no_usage": "no usage at all",
    "no_done": "no [DONE]",
    "continuous_usage": "cumulative usage in each event",
    "no_space_after_data": "`data:` without a space",
    "crlf_line_ends": "CRLF line ends",
    "cr_line_ends": "CR line ends",
    "split_writes": "writes cut inside characters",
    "coalesced_events": "8 events in one write",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A measured request and what really happened to it."""

    measured: Measurement
    truth: RequestTruth

    @property
    def ttft_error_s(self) -> float | None:
        """Ours minus the truth."""
        ours_s, true_s = ttft_s(self.measured.trace), truth.ttft_s(self.truth)
        return None if ours_s is None or true_s is None else ours_s - true_s

    @property
    def tpot_error_frac(self) -> float | None:
        """(Ours - truth) / truth."""
        ours_s, true_s = tpot_s(self.measured.trace), truth.tpot_s(self.truth)
        return None if ours_s is None or true_s is None else ours_s / true_s - 1


def checks() -> tuple[Check, ...]:
    """All timing checks."""
    patterns = tuple(_pattern_check(name, about) for name, about in _CHECKED.items())
    return (*patterns, Check(name="burst", about=f"{BURST} requests at once", run=_burst))


def pairs(simulated: SimulateSpec, spec: SweepSpec) -> list[Pair]:
    """Sweep a server and put each measured request beside its truth."""
    with running(simulated) as server:
        run, problem = swept(server, spec)
        if problem is not None:
            raise problem
        truths = server.truths()
    wanted = [one for one in truths if one.max_tokens == spec.decode_len]
    by_time = sorted(wanted, key=lambda one: one.received_s)
    measured = sorted(run.measurements, key=lambda measurement: measurement.started_at_s)
    return [
        Pair(measured=measurement, truth=true)
        for measurement, true in zip(measured, by_time, strict=True)
        if not measurement.is_warmup
    ]


def _pattern_check(name: str, about: str) -> Check:
    def run(num_repeats: int) -> tuple[Error, ...]:
        found = pairs(_with_tokenizer(PATTERNS[name]), _spec(num_repeats))
        return (_ttft_error(found, TTFT_TARGET_S), _tpot_error(found), _count_error(found))

    return Check(name=name, about=about, run=run)


def _burst(num_repeats: int) -> tuple[Error, ...]:
    simulated = SimulateSpec(dialect="vllm", physics=Physics(prefill_a_s=0.05, step_d_s=0.02))
    spec = replace(_spec(max(1, num_repeats // 2)), concurrencies=(BURST,), decode_len=24)
    found = pairs(simulated, spec)
    return (_ttft_error(found, BURST_TTFT_TARGET_S), _tpot_error(found), _count_error(found))


def _with_tokenizer(simulated: SimulateSpec) -> SimulateSpec:
    """The pattern on a server with a tokenize endpoint and nothing else that helps to count."""
    confounds = simulated.confounds
    if confounds.continuous_usage == "dialect":
        confounds = replace(confounds, continuous_usage="no")
    return replace(simulated, dialect="vllm", confounds=replace(confounds, token_ids="no"))


def _spec(num_repeats: int) -> SweepSpec:
    return SweepSpec(
        url="selftest",
        context_lens=(PROMPT_LEN,),
        decode_len=DECODE_LEN,
        num_repeats=num_repeats,
        num_warmups=1,
        endpoint="chat",
    )


def _ttft_error(found: list[Pair], target_s: float) -> Error:
    errors_s = [pair.ttft_error_s for pair in found]
    known = [error for error in errors_s if error is not None]
    middle = statistics.median(known) if len(known) == len(errors_s) and known else None
    note = f"{min(known) * 1e3:+.1f} to {max(known) * 1e3:+.1f}" if known else ""
    return Error(name="TTFT", value=_scaled(middle, 1e3), target=target_s * 1e3, unit="ms", note=note)


def _tpot_error(found: list[Pair]) -> Error:
    errors = [pair.tpot_error_frac for pair in found]
    known = [error for error in errors if error is not None]
    middle = statistics.median(known) if len(known) == len(errors) and known else None
    return Error(name="token time", value=_scaled(middle, 100), target=TPOT_TARGET_FRAC * 100, unit="%")


def _count_error(found: list[Pair]) -> Error:
    """The largest difference in tokens, prompt or output."""
    differences: list[int] = []
    for pair in found:
        ours = (output_tokens(pair.measured.trace), prompt_tokens(pair.measured.trace))
        if ours[0] is None:
            return Error(name="tokens", value=None, target=0, unit="")
        differences.append(abs(ours[0] - pair.truth.output_len))
        if ours[1] is not None and pair.truth.prompt_len is not None:
            differences.append(abs(ours[1] - pair.truth.prompt_len))
    return Error(name="tokens", value=float(max(differences)), target=0, unit="")


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
