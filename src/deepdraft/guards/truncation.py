"""Guard: the server did not cut the prompt.

What it sees: the server's count against what was sent. Why it matters: Ollama by default and SGLang with
--allow-auto-truncate shorten a prompt that is too long and answer as if nothing had happened.
Violated when the count is short by more than 2 tokens and 1 %. Not verifiable without a count, nor when a prompt of
the asked length could not even be made since the server's own counts, which it was made by, stopped short of it.
When it is wrong: our own count of what was sent is off by more than that (another tokenizer than the server's).
"""

from __future__ import annotations

from deepdraft.guards.guard import GuardReport, PointEvidence
from deepdraft.metrics import prompt_tokens
from deepdraft.records import Measurement

NAME = "truncation"
_SLACK_LEN = 2
_SLACK_FRAC = 0.01


def truncation(evidence: PointEvidence) -> GuardReport:
    """The verdict for one point."""
    requests = evidence.requests
    counted = [
        (count, _sent_len(request)) for request in requests if (count := prompt_tokens(request.trace)) is not None
    ]
    cut = [(count, sent) for count, sent in counted if _is_short(count, sent)]
    if cut:
        count, sent = min(cut, key=lambda pair: pair[0] / pair[1])
        text = f"the server cut the prompt: {count:,} of {sent:,} tokens ({len(cut)} of {len(requests)} requests)"
        return GuardReport(name=NAME, state="violated", evidence=text, doubts=("context_len",))
    if not counted or len(counted) < len(requests):
        text = "the server counts no prompt tokens" if requests else "nothing was measured"
        return GuardReport(
            name=NAME, state="not_verifiable", evidence=text, doubts=("context_len",) if requests else ()
        )
    unmade = [request for request in requests if _is_short(_sent_len(request), request.prompt.asked_len)]
    if unmade:
        most, asked = _sent_len(unmade[0]), unmade[0].prompt.asked_len
        text = (
            f"the server never counted more than {most:,} tokens when a prompt of {asked:,} was made: "
            "a server that cuts prompts does that"
        )
        return GuardReport(name=NAME, state="not_verifiable", evidence=text, doubts=("context_len",))
    return GuardReport(name=NAME, state="verified", evidence=f"nothing is missing of {counted[0][1]:,} tokens sent")


def _is_short(num_tokens: int, whole: int) -> bool:
    return whole - num_tokens > max(_SLACK_LEN, _SLACK_FRAC * whole)


def _sent_len(request: Measurement) -> int:
    expected = request.prompt.expected_len
    return expected if expected is not None else request.prompt.asked_len
