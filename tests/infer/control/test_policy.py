"""The policy against servers of known truth: as fast as the better of always and never, and no slower than never."""

from __future__ import annotations

import random
from typing import Any

import pytest
from benchmarks.speculation_control.server import BUDGET, DRAFT_LEN, Job, Ran, SimulatedServer, Truth, jobs
from hypothesis import given, settings
from hypothesis import strategies as st

from deepdraft.infer.control.plan import Decoding, Outcome
from deepdraft.infer.control.policy import FREE_DRAFT_FRAC, Policy
from deepdraft.infer.control.purse import PROBE_COST_FRAC, WATCH_COST_FRAC

CHEAP = Truth(row_frac=0.01, draft_s=0.001)
"""Drafting pays here, if anything is accepted."""
DEAR = Truth(row_frac=0.25, draft_s=0.006)
"""And here it does not, whatever is accepted."""
TRUTHS = st.builds(
    Truth,
    row_frac=st.sampled_from([0.0, 0.01, 0.03, 0.1, 0.25]),
    first_row_frac=st.sampled_from([0.0, 0.3, 1.0]),
    draft_s=st.sampled_from([0.0003, 0.001, 0.003, 0.006]),
    kv_s=st.sampled_from([0.0, 1e-7, 1e-6]),
    noise_frac=st.sampled_from([0.0, 0.05, 0.1]),
    outlier_frac=st.sampled_from([0.0, 0.02]),
)


def rates(truth: Truth, **values: Any) -> tuple[float, float, Ran]:
    """never's, always's, and what auto did."""
    plain, drafted, auto = (
        SimulatedServer(truth, mode, seed=1).run(jobs(4, **values)) for mode in ("never", "always", "auto")
    )
    return plain.rate, drafted.rate, auto


@settings(max_examples=12, deadline=None)
@given(truth=TRUTHS, confidence=st.floats(0.2, 0.9), honesty=st.sampled_from([0.4, 0.7, 1.0]))
def test_auto_against_the_better_of_both(truth: Truth, confidence: float, honesty: float) -> None:
    """From the first token on, learning included, over 2,000 tokens: at least 0.95 of never here, where seconds of
    both runs are drawn anew (the mean over many truths is 0.99), and where drafting wins clearly most of what it
    wins. Near break-even it may take long to find out: what is missed there is small."""
    never, always, auto = rates(truth, num_tokens=500, confidence=confidence, honesty=honesty)
    assert auto.rate > 0.95 * never
    if always > 1.3 * never:
        assert auto.rate > 0.85 * always


def test_on_average_it_loses_no_more_than_probing_and_learning_may_cost() -> None:
    """Where drafting never pays, over requests as short as they come."""
    lost = []
    for seed in range(6):
        never, auto = (
            SimulatedServer(Truth(row_frac=0.1, draft_s=0.006, noise_frac=0.05), mode, seed=seed).run(
                jobs(12, num_tokens=100, confidence=0.2 + 0.06 * seed)
            )
            for mode in ("never", "auto")
        )
        lost.append(1 - auto.rate / never.rate)
    assert max(lost) < 0.03 and sum(lost) / len(lost) < 0.02


@pytest.mark.parametrize("concurrency", [1, 4])
def test_probing_costs_no_more_than_its_share(concurrency: int) -> None:
    server = SimulatedServer(DEAR)
    ran = server.run(jobs(4, num_tokens=6000, confidence=0.5), concurrency=concurrency)
    assert ran.all_reasons["probe"] > 3
    assert ran.probe_loss_s <= PROBE_COST_FRAC * ran.seconds + 0.05
    assert ran.all_reasons["pays"] == 0


@pytest.mark.parametrize("draft_s", [0.0003, 0.0008, 0.006])
def test_watching_costs_no_more_than_its_share(draft_s: float) -> None:
    ran = SimulatedServer(Truth(row_frac=0.25, draft_s=draft_s)).run(jobs(4, num_tokens=1000, confidence=0.1))
    assert ran.all_reasons["watch"] > 3
    assert ran.all_reasons["watch"] * draft_s <= WATCH_COST_FRAC * ran.seconds + 2 * draft_s


def test_what_begins_to_pay_is_seen_by_watching() -> None:
    """A drafter at the place where an answer becomes easy: drafts cost little, rows do."""
    truth = Truth(plain_s=0.0017, row_frac=0.03, first_row_frac=0.5, draft_s=0.00012)

    def repeats_later(job: Job) -> None:
        job.honesty = 0.05 if job.num_done < 150 else 1.0

    def ran(*, can_watch: bool) -> Ran:
        server = SimulatedServer(truth, seed=3)
        server.policy.can_watch = can_watch
        return server.run(jobs(6, num_tokens=450, confidence=0.9, change=repeats_later))

    watching, probing = ran(can_watch=True), ran(can_watch=False)
    assert probing.all_reasons["watch"] == 0
    assert watching.rate > 1.05 * probing.rate


def test_it_finds_the_smaller_tree_that_pays() -> None:
    """A whole tree loses, and so does no draft at all."""
    never, always, auto = rates(Truth(row_frac=0.25, draft_s=0.0005), num_tokens=1500, confidence=0.8)
    assert always < never and auto.rate > 1.4 * never
    commonest = auto.num_nodes.most_common(1)[0][0]
    assert 0 < commonest < 8


def test_drafts_that_stop_being_accepted_halfway() -> None:
    def turns_bad(job: Job) -> None:
        job.honesty = 1.0 if job.num_done < 1000 else 0.02

    truth = Truth(row_frac=0.05, draft_s=0.003)
    first = SimulatedServer(truth).run([Job("a", num_tokens=1000, confidence=0.8)])
    ran = SimulatedServer(truth).run([Job("a", num_tokens=2000, confidence=0.8, change=turns_bad)])
    plain_s = truth.forward_s(1, 1, 2000)
    assert first.rate > 2 / plain_s
    second_s = ran.seconds - first.seconds
    assert second_s < 1.10 * 1000 * plain_s, "in the second half hardly slower than plain"


def test_drafts_that_begin_to_be_accepted_halfway() -> None:
    def turns_good(job: Job) -> None:
        job.honesty = 0.02 if job.num_done < 1000 else 1.0

    truth = Truth(row_frac=0.05, draft_s=0.003)
    ran = SimulatedServer(truth).run([Job("a", num_tokens=6000, confidence=0.8, change=turns_good)])
    drafted = SimulatedServer(truth, "always").run([Job("a", num_tokens=5000, confidence=0.8)])
    assert ran.all_reasons["pays"] > 1000
    assert ran.seconds < 1000 * 0.0052 * 1.05 + 1.5 * drafted.seconds


def test_costs_that_change_while_drafting_is_off() -> None:
    """The machine gets another kernel: what was dear is cheap, and probes tell."""
    truth = Truth(row_frac=0.25, draft_s=0.006)

    def cheaper(job: Job) -> None:
        if job.num_done > 1000:
            truth.row_frac, truth.draft_s = 0.01, 0.001

    ran = SimulatedServer(truth).run([Job("a", num_tokens=12_000, confidence=0.8, change=cheaper)])
    assert ran.all_reasons["pays"] > 1500


def test_a_machine_that_slows_down_changes_no_decision() -> None:
    truth = Truth(row_frac=0.01, draft_s=0.001)

    def slower(job: Job) -> None:
        truth.slowness = 1.0 if job.num_done < 1000 else 3.0

    ran = SimulatedServer(truth).run([Job("a", num_tokens=3000, confidence=0.7, change=slower)])
    reasons = ran.all_reasons
    assert reasons["below_break_even"] < 0.1 * reasons["pays"]


def test_a_machine_that_was_busy_when_rounds_were_looked_at() -> None:
    truth = Truth(row_frac=0.02, draft_s=0.001, slowness=5.0)

    def freed(job: Job) -> None:
        truth.slowness = 5.0 if job.num_done < 8 else 1.0

    ran = SimulatedServer(truth).run([Job("a", num_tokens=2000, confidence=0.7, change=freed)])
    reasons = ran.all_reasons
    assert reasons["below_break_even"] < 0.1 * reasons["pays"]


def test_a_spike_at_the_first_look_does_not_keep_drafting_off() -> None:
    """The first rounds take thirty times as long, once: they alone are known of rounds then."""
    truth = Truth(row_frac=0.02, draft_s=0.001)

    def spike(job: Job) -> None:
        truth.slowness = 30.0 if 3 <= job.num_done < 10 else 1.0

    ran = SimulatedServer(truth).run([Job("a", num_tokens=6000, confidence=0.7, change=spike)])
    assert ran.all_reasons["pays"] > 1000


def test_one_request_s_bad_drafts_don_t_switch_off_another_s() -> None:
    good = Job("good", num_tokens=1500, confidence=0.8)
    bad = Job("bad", num_tokens=1500, confidence=0.8, honesty=0.02)
    ran = SimulatedServer(Truth(row_frac=0.04, draft_s=0.0015)).run([good, bad], concurrency=2)
    assert ran.reasons["good"]["pays"] > 10 * ran.reasons["good"]["below_break_even"]
    assert ran.reasons["bad"]["below_break_even"] > ran.reasons["bad"]["pays"]


def test_lengths_are_decided_apart() -> None:
    """Drafting costs as much as it reads: it pays at 1k and not at 64k, and neither decides for the other."""

    class Rescanning(Truth):
        def drafting_s(self, num_drafting: int) -> float:
            return self.draft_s if num_drafting else 0.0

    truth = Rescanning(row_frac=0.02)

    def at_its_length(job: Job) -> None:
        truth.draft_s = 0.001 if job.context_len < 10_000 else 0.050

    ran = SimulatedServer(truth).run(
        [
            Job(str(place), context_len=(1_000, 64_000)[place % 2], confidence=0.7, change=at_its_length)
            for place in range(10)
        ]
    )
    short = sum((ran.reasons[str(place)] for place in range(2, 10, 2)), start=ran.reasons["0"])
    long = sum((ran.reasons[str(place)] for place in range(3, 10, 2)), start=ran.reasons["1"])
    assert short["pays"] > 20 * short["below_break_even"]
    assert long["below_break_even"] > 20 * long["pays"]


def test_a_drafter_that_mostly_has_nothing_is_asked_all_the_same() -> None:
    """Prompt lookup: one time in ten seven right tokens, and looking costs next to nothing."""
    truth = Truth(row_frac=0.1, draft_s=0.0001)
    never, _, auto = rates(truth, num_tokens=1500, confidence=0.97, found_frac=0.1)
    assert auto.rate > 1.15 * never


def test_trees_of_a_drafter_that_costs_nothing_are_weighed_one_by_one() -> None:
    """Prompt lookup, which knows a long repetition from a short one: three drafts in ten are nearly certain, and no
    tree says anything of the next. Always loses by the others, never by these."""
    truth = Truth(plain_s=0.0017, row_frac=0.15, first_row_frac=0.3, draft_s=0.00005)
    mixed = random.Random(5)

    def at_random(job: Job) -> None:
        job.confidence = 0.97 if mixed.random() < 0.3 else 0.1

    never, always, auto = rates(truth, num_tokens=600, is_calibrated=True, change=at_random)
    assert auto.rate > 1.15 * max(never, always)
    assert auto.all_reasons["below_break_even"] < 0.02 * auto.num_steps


@pytest.mark.parametrize("found_frac", [0.0, 0.1, 1.0])
def test_asking_at_every_step_costs_no_more_than_its_share(found_frac: float) -> None:
    """Where no draft is ever worth its row."""
    truth = Truth(row_frac=0.3, draft_s=0.0002)
    plain, auto = (
        SimulatedServer(truth, mode).run(jobs(4, num_tokens=500, confidence=0.1, found_frac=found_frac))
        for mode in ("never", "auto")
    )
    assert auto.rate > (1 - FREE_DRAFT_FRAC - 0.01) * plain.rate


def test_it_does_not_flap_at_break_even() -> None:
    """Near it both are as good; what counts is that neither noise nor switching costs."""
    truth = Truth(row_frac=0.06, draft_s=0.0035, noise_frac=0.1)
    never, always, auto = rates(truth, num_tokens=1500, confidence=0.55)
    assert abs(always / never - 1) < 0.35
    assert auto.rate > 0.97 * never


def test_modes() -> None:
    for mode, reason in (("always", "always"), ("never", "never")):
        server = SimulatedServer(CHEAP, mode)  # type: ignore[arg-type]
        ran = server.run(jobs(2, num_tokens=50), concurrency=2)
        assert set(ran.all_reasons) == {reason}
        assert (set(ran.num_nodes) == {0}) == (mode == "never")
        assert server.policy.books.num_requests == 0


def test_nothing_of_a_request_stays() -> None:
    server = SimulatedServer(CHEAP)
    server.run(jobs(30, num_tokens=30), concurrency=3)
    server.run([Job(f"again{place}", num_tokens=40, honesty=0.0) for place in range(20)], concurrency=5)
    assert server.policy.books.num_requests == 0


def test_what_is_decided_comes_with_its_figures() -> None:
    server = SimulatedServer(CHEAP)
    server.run(jobs(3, confidence=0.8))
    requests = [Decoding(request_id="a", context_len=1000), Decoding(request_id="b", context_len=9, can_draft=False)]
    for _ in range(2):
        plan = server.policy.plan(requests)
        server.policy.observe(plan, [Outcome()] * 2, seconds=0.006, draft_s=0.0)
    plan = server.policy.plan(requests)
    first, last = plan.decisions
    assert (first.reason, last.reason, plan.drafting) == ("pays", "ending", (True, False))
    assert first.break_even_len is not None and first.expected_len is not None
    assert 1 < first.break_even_len < first.expected_len < 1 + DRAFT_LEN
    assert last.break_even_len is None


def test_a_verified_tree_keeps_the_nodes_it_must_have() -> None:
    """A simulated acceptance length needs its chain."""
    policy = Policy("auto", draft_len=DRAFT_LEN, tree_budget=BUDGET, min_nodes=5)
    server = SimulatedServer(Truth(row_frac=0.25, draft_s=0.0003))
    server.policy = policy
    ran = server.run(jobs(3, num_tokens=600, confidence=0.9))
    assert min(nodes for nodes in ran.num_nodes if nodes) == 5


def test_the_first_rounds_are_few() -> None:
    """An engine that was just started: two plain steps, two rounds, and it is known that drafting doesn't pay."""
    ran = SimulatedServer(DEAR).run([Job("a", num_tokens=200, confidence=0.3)])
    assert ran.all_reasons["learning"] <= 4
    assert sum(count for nodes, count in ran.num_nodes.items() if nodes) <= 3
