"""Guard: acceptance comes from comparing drafts, not from dice.

What it sees: whether the server says that it makes accepted lengths up (our --simulate-acceptance-len, vLLM's
synthetic rejection sampling). Why it matters: such a mode tells what a step costs at a given acceptance; the tokens a
step, and every rate made of them, were decided by whoever set it, and the text is no answer.
Violated when the server says so. Verified when it says that it does not, or has no drafter. Not verifiable where it
does not tell (SGLANG_SIMULATE_ACC_LEN is seen nowhere); then nothing is put in doubt.
When it is wrong: a server that hides it.
"""

from __future__ import annotations

from deepdraft.guards.guard import GuardReport, PointEvidence

NAME = "simulated_acceptance"
_DOUBTS = (
    "tpot_s",
    "decode_tok_s",
    "itl_s",
    "tokens_per_step",
    "acceptance_len",
    "e2el_s",
    "e2el_from_scheduled_s",
    "output_tok_s",
    "total_tok_s",
)
"""Not step_s: what a step costs is what the mode is for."""


def simulated_acceptance(evidence: PointEvidence) -> GuardReport:
    """The verdict for one point."""
    requests, server = evidence.requests, evidence.capabilities
    if not requests:
        return GuardReport(name=NAME, state="not_verifiable", evidence="nothing was measured")
    said = [request.acceptance.is_simulated for request in requests if request.acceptance is not None]
    if server.simulates_acceptance == "yes" or any(said):
        return GuardReport(
            name=NAME,
            state="violated",
            evidence="ACCEPTANCE IS SIMULATED: tokens a step were set, not earned by a drafter; only the time of a "
            "step is a measurement",
            doubts=_DOUBTS,
        )
    if server.speculation == "no":
        return GuardReport(name=NAME, state="verified", evidence="no drafter is active")
    if server.simulates_acceptance == "no" or (len(said) == len(requests) and all(each is False for each in said)):
        return GuardReport(name=NAME, state="verified", evidence="the server compares its drafts")
    return GuardReport(
        name=NAME, state="not_verifiable", evidence="the server does not tell whether acceptance is simulated"
    )
