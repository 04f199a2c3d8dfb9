"""A server of known truth for the controller: what its passes cost and how often its drafts are right is stated.

Seconds and drafts are drawn from a seed; nothing sleeps.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from deepdraft.infer.control.acceptance import Drafts
from deepdraft.infer.control.decision import Reason, SpeculationMode
from deepdraft.infer.control.plan import Decoding, Outcome, Plan
from deepdraft.infer.control.policy import Policy

DRAFT_LEN = 7
BUDGET = 16
Path = tuple[int, ...]


@dataclass
class Job:
    """A request: how long it is, and how right its drafts are."""

    request_id: str
    context_len: int = 1000
    num_tokens: int = 400
    confidence: float = 0.6
    """Mean probability that the drafter gives its first candidate of a depth."""
    honesty: float = 1.0
    """The true probability over the drafter's own."""
    found_frac: float = 1.0
    """How often the drafter has anything to propose."""
    is_calibrated: bool = False
    """The drafter says that its probabilities are right."""
    change: Callable[[Job], None] | None = None
    """Called before each step; may change the job."""
    num_done: int = 0


@dataclass
class Truth:
    """What a server's steps take."""

    plain_s: float = 0.005
    kv_s: float = 1e-7
    """For a cached token."""
    row_frac: float = 0.05
    """What a row more adds to a pass, as a share of a plain step of one request."""
    first_row_frac: float = 0.0
    """And what the first draft row adds beside that (experts met, another kernel)."""
    draft_s: float = 0.002
    noise_frac: float = 0.0
    """Standard deviation of the logarithm of each time."""
    outlier_frac: float = 0.0
    """How often a time is three times as long."""
    slowness: float = 1.0

    def forward_s(self, num_requests: int, num_rows: int, kv_tokens: int) -> float:
        plain_s = self.slowness * (self.plain_s + self.kv_s * kv_tokens)
        has_drafts = num_rows > num_requests
        return plain_s * (1 + self.row_frac * (num_rows - 1) + self.first_row_frac * has_drafts)

    def drafting_s(self, num_drafting: int) -> float:
        return self.slowness * self.draft_s * (0.7 + 0.3 * num_drafting) if num_drafting else 0.0


@dataclass
class Ran:
    """What a run took and gave."""

    seconds: float = 0.0
    num_tokens: int = 0
    num_steps: int = 0
    probe_loss_s: float = 0.0
    """What steps with probes took longer than the same tokens plainly."""
    reasons: dict[str, Counter[Reason]] = field(default_factory=dict)
    """Of each job's steps."""
    num_nodes: Counter[int] = field(default_factory=Counter)
    """Of each request's step, how many were verified."""

    @property
    def rate(self) -> float:
        return self.num_tokens / self.seconds

    @property
    def all_reasons(self) -> Counter[Reason]:
        return sum(self.reasons.values(), Counter())


@dataclass
class Tree:
    """Paths as ranks, and what the drafter held likely."""

    paths: list[Path]
    drafts: Drafts
    depth_probs: list[tuple[float, float]]


class SimulatedServer:
    """Runs jobs under a policy."""

    def __init__(self, truth: Truth, mode: SpeculationMode = "auto", *, seed: int = 0) -> None:
        self.truth = truth
        self.policy = Policy(mode, draft_len=DRAFT_LEN, tree_budget=BUDGET)
        self._rng = random.Random(seed)

    def run(self, jobs: Iterable[Job], *, concurrency: int = 1) -> Ran:
        """All of the jobs, so many at a time."""
        waiting, running, ran = list(jobs), list[Job](), Ran()
        while waiting or running:
            while waiting and len(running) < concurrency:
                running.append(waiting.pop(0))
            self._step(running, ran)
            for job in [job for job in running if job.num_done >= job.num_tokens]:
                running.remove(job)
                self.policy.forget(job.request_id)
        return ran

    def _step(self, running: list[Job], ran: Ran) -> None:
        for job in running:
            if job.change is not None:
                job.change(job)
        decoding = [
            Decoding(request_id=job.request_id, context_len=job.context_len + job.num_done) for job in running
        ]
        plan = self.policy.plan(decoding)
        trees = [self._tree(job) if asked else None for job, asked in zip(running, plan.drafting, strict=True)]
        plan = self.policy.cut(plan, [None if tree is None else tree.drafts for tree in trees])
        nodes = plan.num_nodes
        outcomes = [self._outcome(*each) for each in zip(running, trees, nodes, strict=True)]
        draft_s = self._noisy(self.truth.drafting_s(sum(plan.drafting)))
        kv_tokens = sum(each.context_len for each in decoding)
        forward_s = self._noisy(self.truth.forward_s(len(running), len(running) + sum(nodes), kv_tokens))
        self.policy.observe(plan, outcomes, seconds=draft_s + forward_s, draft_s=draft_s)
        for job, tree, num_nodes, each in zip(running, trees, nodes, decoding, strict=True):
            if tree is not None and tree.paths and not num_nodes and self.policy.can_watch:
                would_be = self._outcome(job, tree, len(tree.paths)).accepted_len
                self.policy.observe_watched(each.request_id, each.context_len, tree.drafts, would_be)
        self._count(ran, running, plan, outcomes, draft_s + forward_s)

    def _count(self, ran: Ran, running: list[Job], plan: Plan, outcomes: list[Outcome], seconds: float) -> None:
        num_tokens = sum(1 + outcome.accepted_len for outcome in outcomes)
        ran.seconds += seconds
        ran.num_tokens += num_tokens
        ran.num_steps += 1
        kv_tokens = sum(job.context_len + job.num_done for job in running)
        if any(decision.reason == "probe" for decision in plan.decisions):
            plain_s = self.truth.forward_s(len(running), len(running), kv_tokens)
            ran.probe_loss_s += seconds - plain_s * num_tokens / len(running)
        for job, outcome, decision in zip(running, outcomes, plan.decisions, strict=True):
            job.num_done += outcome.accepted_len + 1
            ran.num_nodes[outcome.num_nodes] += 1
            ran.reasons.setdefault(job.request_id, Counter())[decision.reason] += 1

    def _noisy(self, seconds: float) -> float:
        noise = math.exp(self._rng.gauss(0, self.truth.noise_frac)) if self.truth.noise_frac else 1.0
        return seconds * noise * (3.0 if self._rng.random() < self.truth.outlier_frac else 1.0)

    def _tree(self, job: Job) -> Tree:
        """The best tree of two candidates a depth."""
        depth_probs = []
        for _ in range(DRAFT_LEN if self._rng.random() < job.found_frac else 0):
            first = min(0.98, max(0.02, self._rng.gauss(job.confidence, 0.2)))
            depth_probs.append((first, (1 - first) / 2))
        heap: list[tuple[float, Path]] = []
        probs, paths = list[float](), list[Path]()
        score: float = -1.0
        path: Path = ()
        while len(probs) < BUDGET:
            if len(path) < len(depth_probs):
                for rank, prob in enumerate(depth_probs[len(path)]):
                    heapq.heappush(heap, (score * prob, (*path, rank)))
            if not heap:
                break
            score, path = heapq.heappop(heap)
            probs.append(-score)
            paths.append(path)
        depths = [len(path) for path in paths]
        drafts = Drafts(path_probs=probs, depths=depths, is_calibrated=job.is_calibrated)
        return Tree(paths, drafts, depth_probs)

    def _outcome(self, job: Job, tree: Tree | None, num_nodes: int) -> Outcome:
        if tree is None:
            return Outcome()
        kept = set(tree.paths[:num_nodes])
        path: Path = ()
        for first, second in tree.depth_probs:
            drawn = self._rng.random() / max(job.honesty, 1e-9)
            path = (*path, 0 if drawn < first else 1 if drawn < first + second else 2)
            if path not in kept:
                path = path[:-1]
                break
        return Outcome(drafts=tree.drafts, num_nodes=num_nodes, accepted_len=len(path))


def jobs(number: int, **values: object) -> list[Job]:
    """So many alike."""
    return [Job(request_id=str(place), **values) for place in range(number)]  # type: ignore[arg-type]
