"""With a drafter or without, alone or in company: not one token differs.

Prompts share prefixes and come in any order; they are prefilled in chunks, found in the cache, evicted and preempted,
their pages are moved; some sample, with filters and penalties, some end early. Each output is compared with the same
request's alone, in an empty engine without a drafter.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from oracle_drafter import ForgetfulDrafter, OracleDrafter

from deepdraft.infer.drafters.drafter import Drafter
from deepdraft.infer.drafters.ngram import NgramDrafter, NgramSettings
from deepdraft.infer.request import Request
from deepdraft.infer.settings import SpeculationSettings

NUM_REQUESTS = 26
"""Over four kinds of drafts and two models 208 outputs alone, and as many in company."""
KINDS = {
    "chain": SpeculationSettings(tree_budget=5, tree_top_k=1),
    "tree": SpeculationSettings(tree_budget=9, tree_top_k=4),
    "spine": SpeculationSettings(tree_budget=7, tree_top_k=3, is_spine_first=True),
    "ngram": SpeculationSettings(tree_budget=6),
}


@dataclass
class Workload:
    """Requests and what each of them gets alone."""

    requests: list[Request] = field(default_factory=list)
    alone: dict[str, list[int]] = field(default_factory=dict)

    @property
    def texts(self) -> list[list[int]]:
        """Prompts and outputs, as an oracle wants to know them."""
        return [[*request.prompt_token_ids, *self.alone[request.request_id]] for request in self.requests]


def requests_of(rng: random.Random, make_request: Any) -> list[Request]:
    trunks = [[rng.randrange(256) for _ in range(rng.randrange(4, 50))] for _ in range(4)]
    requests = []
    for number in range(NUM_REQUESTS):
        trunk = rng.choice([*trunks, []])
        own = [rng.randrange(256) for _ in range(rng.randrange(1, 30))]
        repeated = own if number % 2 else []  # for prompt lookup
        params: dict[str, Any] = {"max_tokens": rng.randrange(1, 30)}
        if number % 5 == 0:
            params |= {"temperature": rng.choice([0.7, 3.0]), "seed": number, "top_p": 0.95, "top_k": 50}
        if number % 7 == 0:
            params |= {"presence_penalty": 0.6, "frequency_penalty": 0.3, "repetition_penalty": 1.2}
        if number % 4 == 0:
            params |= {"stop_token_ids": tuple(range(0, 256, 16)), "min_tokens": rng.randrange(params["max_tokens"])}
        prompt = [*trunk[: rng.randrange(len(trunk) + 1)], *own, *repeated]
        requests.append(make_request(str(number), prompt, **params))
    return requests


@pytest.fixture(scope="module")
def workload(tiny: Any, collect: Any, make_request: Any) -> Workload:
    requests = requests_of(random.Random(7), make_request)
    alone = {each.request_id: collect(tiny.engine(), [each])[each.request_id].token_ids for each in requests}
    return Workload(requests, alone)


def drafter_of(kind: str, workload: Workload) -> Drafter:
    if kind == "ngram":
        return NgramDrafter(NgramSettings(draft_len=4, min_ngram_len=1))
    if kind == "tree":
        return ForgetfulDrafter(workload.texts)
    return OracleDrafter(workload.texts)


@pytest.mark.parametrize("kind", KINDS)
def test_alone(tiny: Any, collect: Any, workload: Workload, kind: str) -> None:
    """One after the other in one engine: later ones find earlier ones in the cache."""
    engine = tiny.engine(drafter=drafter_of(kind, workload), speculation=KINDS[kind], kv_pool_tokens=2048)
    for request in workload.requests:
        answer = collect(engine, [request])[request.request_id]
        assert answer.token_ids == workload.alone[request.request_id]
    assert engine.steps.totals["verify"].num_accepted_tokens > (0 if kind == "ngram" else 60)
    assert engine.stats().num_preemptions_total == 0 and engine.stats().num_cached_tokens_total > 0


@pytest.mark.parametrize("kind", KINDS)
def test_in_company(tiny: Any, workload: Workload, kind: str) -> None:
    rng = random.Random(kind)
    page_size, chunk_len = {"chain": (1, 16), "tree": (3, 64), "spine": (4, 5), "ngram": (8, 16)}[kind]
    engine = tiny.engine(
        drafter=drafter_of(kind, workload),
        speculation=KINDS[kind],
        page_size=page_size,
        kv_pool_tokens=112 // page_size * page_size,
        chunk_len=chunk_len,
        max_running_requests=8,
        defragment=True,
    )
    to_come = list(workload.requests)
    rng.shuffle(to_come)
    here: dict[str, list[int]] = {}
    num_ended = 0
    while to_come or engine.has_work:
        while to_come and rng.random() < 0.5:
            engine.submit(to_come[-1])
            here[to_come.pop().request_id] = []
        if here and rng.random() < 0.01:
            engine.abort(rng.choice(list(here)))
        for output in engine.step():
            here[output.request_id] += output.token_ids
            if output.finish_reason is None:
                continue
            token_ids, expected = here.pop(output.request_id), workload.alone[output.request_id]
            assert token_ids == (expected if output.finish_reason != "abort" else expected[: len(token_ids)])
            num_ended += 1
    assert num_ended == NUM_REQUESTS
    stats, verify = engine.stats(), engine.steps.totals["verify"]
    assert stats.num_preemptions_total > 0 and stats.num_cached_tokens_total > 0, "or this shows nothing"
    assert verify.num_rounds > 0 and (kind == "ngram" or verify.num_accepted_tokens > 40)
    assert stats.num_held_pages == 0 and engine.flush_cache()
    assert engine.stats().num_free_pages == stats.num_pool_pages


def test_defragmentation_moves_pages_and_nothing_else(tiny: Any, collect: Any, workload: Workload) -> None:
    """Requests that grow side by side have pages that alternate; moved together, they go on as before."""
    requests = [request for request in workload.requests if request.sampling.max_tokens > 15][:6]
    for drafter in (None, OracleDrafter(workload.texts)):
        engine = tiny.engine(
            drafter=drafter, speculation=KINDS["tree"], kv_pool_tokens=1024, page_size=2, defragment=True
        )
        answers = collect(engine, requests)
        assert engine.stats().num_moved_pages_total > 20
        for name, answer in answers.items():
            assert answer.token_ids == workload.alone[name]
