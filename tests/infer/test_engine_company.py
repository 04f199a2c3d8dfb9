"""What a request gets never depends on what else is in the batch, the cache or the pool: not one token.

Prompts share prefixes and come in any order; pools are small enough that pages are evicted and requests preempted;
some requests are aborted on the way. Each output is compared with the same request's alone, in an empty engine.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from deepdraft.infer.request import Request

NUM_SCENARIOS = 5
NUM_REQUESTS = 24
"""Of each scenario: with two models 240 prompts."""


def requests_of(rng: random.Random, make_request: Any) -> list[Request]:
    trunks = [[rng.randrange(256) for _ in range(rng.randrange(4, 50))] for _ in range(3)]
    requests = []
    for number in range(NUM_REQUESTS):
        trunk = rng.choice([*trunks, []])
        own = [rng.randrange(256) for _ in range(rng.randrange(1, 30))]
        params: dict[str, Any] = {"max_tokens": rng.randrange(1, 30)}
        if number % 3 == 0:
            params |= {"temperature": rng.choice([0.7, 3.0]), "seed": number, "top_p": 0.95, "top_k": 50}
        requests.append(make_request(str(number), [*trunk[: rng.randrange(len(trunk) + 1)], *own], **params))
    return requests


@pytest.mark.parametrize("scenario", range(NUM_SCENARIOS))
def test_output_alone_and_in_company(tiny: Any, collect: Any, make_request: Any, scenario: int) -> None:
    rng = random.Random(scenario)
    requests = requests_of(rng, make_request)
    alone = {request.request_id: collect(tiny.engine(), [request])[request.request_id] for request in requests}

    page_size = rng.choice([1, 3, 4, 8])
    engine = tiny.engine(
        page_size=page_size,
        kv_pool_tokens=-(-rng.randrange(96, 120) // page_size) * page_size,
        chunk_len=rng.choice([5, 16, 64]),
        max_running_requests=rng.choice([4, 6, 12]),
    )
    # Each one twice: the second time through whatever the cache kept of the first.
    to_come = [replace(request, request_id=f"{request.request_id}/{turn}") for request in requests for turn in (1, 2)]
    rng.shuffle(to_come)
    here: dict[str, list[int]] = {}
    num_finished = num_aborted = 0
    while to_come or engine.has_work:
        while to_come and rng.random() < 0.6:
            request = to_come.pop()
            engine.submit(request)
            here[request.request_id] = []
        if here and rng.random() < 0.02:
            num_aborted += engine.abort(rng.choice(list(here)))
        for output in engine.step():
            token_ids = here[output.request_id]
            token_ids += output.token_ids
            if output.finish_reason is None:
                continue
            expected = alone[output.request_id.split("/")[0]].token_ids
            if output.finish_reason == "abort":
                expected = expected[: len(token_ids)]
            else:
                num_finished += 1
            assert here.pop(output.request_id) == expected

    assert not here
    stats = engine.stats()
    assert (stats.num_finished_total, stats.num_aborted_total) == (num_finished, num_aborted)
    assert num_finished + num_aborted == 2 * NUM_REQUESTS
    assert stats.num_preemptions_total > 0 and stats.num_cached_tokens_total > 0, "or this shows nothing"
    assert stats.num_held_pages == 0 and stats.num_evictable_pages == stats.num_cached_pages
    assert engine.flush_cache() and engine.stats().num_free_pages == stats.num_pool_pages
