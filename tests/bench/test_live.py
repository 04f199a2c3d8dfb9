"""The line that is said when a trial ended."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from deepdraft.bench.live import NOTHING, trial_figures, trial_title
from deepdraft.bench.plan import PlannedTrial
from deepdraft.bench.trial import run_trial
from deepdraft.metrics import points_of
from deepdraft.records import Failure, Run
from deepdraft.units import seconds_text


def test_titles() -> None:
    trial = PlannedTrial(trial_id="t", context_len=11_000, concurrency=1, repeat_index=1)
    assert trial_title(trial) == "11,000 tokens, repeat 2"
    assert trial_title(replace(trial, concurrency=4)) == "11,000 tokens x 4, repeat 2"
    assert trial_title(replace(trial, is_warmup=True)) == "11,000 tokens, warm-up"


def run(open_session, url, *, concurrency=1, **fields):
    async def main():
        async with open_session(url, **fields) as session:
            planned = PlannedTrial(trial_id="t", context_len=300, concurrency=concurrency, repeat_index=0)
            trial, results = await run_trial(session, planned)
            return session.recorder.header, trial, results

    return asyncio.run(main())


def test_figures_are_those_of_the_table(open_session, simulated, physics) -> None:
    server = simulated(physics=physics(prefill_a_s=0.03, step_d_s=0.004))
    header, trial, results = run(open_session, server.url, decode_len=32)
    text = trial_figures(header, trial, results)
    (point,) = points_of(Run(header=header, measurements=results, trials=(trial,)))
    ttft_s, tpot_s = point.figures["ttft_s"].summary.median, point.figures["tpot_s"].summary.median
    assert text.startswith(f"TTFT {seconds_text(ttft_s)}, prefill ")
    assert f", {seconds_text(tpot_s)}/token, decode {1 / tpot_s:.0f} tok/s" in text
    assert "tok/step" not in text  # without a drafter that is always 1
    # Of a warm-up too, and of a failed one what there is.
    warm = trial_figures(header, replace(trial, is_warmup=True), [replace(each, is_warmup=True) for each in results])
    assert warm == text
    failed = [replace(each, failure=Failure(name="Stalled", message="m")) for each in results]
    assert trial_figures(header, trial, failed) == f"{NOTHING}, 1 failed"


def test_tokens_a_step_with_a_drafter(open_session, simulated, physics) -> None:
    server = simulated(physics=physics(step_d_s=0.004, committed_len_pattern=(2,)))
    text = trial_figures(*run(open_session, server.url, decode_len=33))
    assert ", 2 tok/step" in text


def test_pairs_and_needles(open_session, plain) -> None:
    text = trial_figures(*run(open_session, plain.url, method="two-point"))
    assert text.startswith("TTFT ")
    text = trial_figures(*run(open_session, plain.url, file="needle.jsonl", needle_depth=0.5))
    assert text.endswith("needle found")
