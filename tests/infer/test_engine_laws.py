"""Whatever is done to an engine in whatever order, with drafts and without, its laws hold after every step and every
request gets its due."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from oracle_drafter import ForgetfulDrafter

from deepdraft.infer.drafters.ngram import NgramDrafter, NgramSettings
from deepdraft.infer.engine import Engine
from deepdraft.infer.request import Request
from deepdraft.infer.settings import SpeculationSettings

# Few tokens and few trunks, so that prompts share prefixes, and answers become prefixes of prompts.
PROMPTS = st.builds(
    lambda trunk, length, own: [*range(trunk, trunk + length), *own],
    st.sampled_from([0, 100]),
    st.integers(0, 14),
    st.lists(st.sampled_from([7, 8]), min_size=1, max_size=4),
)


class EngineMachine(RuleBasedStateMachine):
    """Submits, steps, aborts and flushes; the model of it is what each request gets alone."""

    def __init__(self, new_engine: Callable[..., Engine], make_request: Any, alone: Callable[[Request], list[int]]):
        super().__init__()
        self.new_engine, self.make_request, self.alone = new_engine, make_request, alone
        self.here: dict[str, tuple[Request, list[int]]] = {}
        self.num_submitted = self.num_ended = self.num_tokens = 0

    @initialize(
        page_size=st.sampled_from([1, 2, 4]),
        num_pages=st.integers(8, 16),
        chunk_len=st.integers(1, 24),
        max_running_requests=st.integers(1, 4),
        has_radix_cache=st.booleans(),
        defragment=st.booleans(),
        drafter=st.sampled_from(["none", "oracle", "oracle", "ngram"]),
        tree_budget=st.integers(1, 8),
        tree_top_k=st.integers(1, 3),
        is_spine_first=st.booleans(),
        mode=st.sampled_from(["always", "auto", "auto", "never"]),
    )
    def begin(
        self,
        page_size: int,
        num_pages: int,
        chunk_len: int,
        max_running_requests: int,
        has_radix_cache: bool,
        defragment: bool,
        drafter: str,
        **tree: Any,
    ) -> None:
        self.texts: list[list[int]] = []
        drafters = {
            "none": None,
            "oracle": ForgetfulDrafter(self.texts, draft_len=3, scratch_len=4),
            "ngram": NgramDrafter(NgramSettings(draft_len=3, min_ngram_len=1)),
        }
        self.has_drafter = drafter != "none"
        self.engine = self.new_engine(
            drafter=drafters[drafter],
            speculation=SpeculationSettings(**tree),
            defragment=defragment,
            page_size=page_size,
            kv_pool_tokens=page_size * max(num_pages, 24 // page_size),
            chunk_len=chunk_len,
            max_running_requests=max_running_requests,
            has_radix_cache=has_radix_cache,
        )

    @rule(prompt=PROMPTS, max_tokens=st.integers(1, 6), is_sampled=st.booleans())
    def submit(self, prompt: list[int], max_tokens: int, is_sampled: bool) -> None:
        heat = {"temperature": 2.0, "seed": 5} if is_sampled else {}
        request = self.make_request(f"r{self.num_submitted}", prompt, max_tokens=max_tokens, **heat)
        self.texts.append([*prompt, *self.alone(request)])
        self.engine.submit(request)
        self.here[request.request_id] = (request, [])
        self.num_submitted += 1

    @rule(number=st.integers(1, 4))
    def step(self, number: int) -> None:
        for _ in range(number):
            self.take_outputs()

    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        if not self.here:
            assert not self.engine.abort("r0")
            return
        name = data.draw(st.sampled_from(sorted(self.here)))
        assert self.engine.abort(name)
        assert not self.engine.abort(name)
        self.take_outputs()
        assert name not in self.here

    @rule()
    def flush(self) -> None:
        assert self.engine.flush_cache() == (not self.here)
        if not self.here:
            assert self.engine.stats().num_free_pages == self.engine.stats().num_pool_pages

    @invariant()
    def laws(self) -> None:
        if not hasattr(self, "engine"):
            return
        self.engine.check()
        stats = self.engine.stats()
        assert stats.num_free_pages + stats.num_held_pages + stats.num_cached_pages == stats.num_pool_pages
        assert stats.num_running + stats.num_waiting == len(self.here)
        assert stats.num_submitted_total == self.num_submitted
        assert stats.num_finished_total + stats.num_aborted_total == self.num_ended
        assert stats.num_completion_tokens_total == self.num_tokens

    def take_outputs(self) -> None:
        for output in self.engine.step():
            request, token_ids = self.here[output.request_id]
            token_ids += output.token_ids
            self.num_tokens += len(output.token_ids)
            assert token_ids == self.alone(request)[: len(token_ids)]
            assert output.num_output_tokens == len(token_ids)
            assert (output.speculation is not None) == self.has_drafter
            if output.finish_reason is not None:
                assert output.finish_reason == "abort" or len(token_ids) == request.sampling.max_tokens
                del self.here[output.request_id]
                self.num_ended += 1

    def teardown(self) -> None:
        """Everything comes to its end, and leaves nothing but cached pages."""
        if not hasattr(self, "engine"):
            return
        while self.engine.has_work:
            self.take_outputs()
        assert not self.here
        assert self.engine.stats().num_held_pages == 0
        self.flush()


def test_laws(tiny_llama: Any, collect: Any, make_request: Any) -> None:
    answers: dict[Any, list[int]] = {}

    def alone(request: Request) -> list[int]:
        key = (request.prompt_token_ids, request.sampling)
        if key not in answers:
            engine = tiny_llama.engine(is_checked=False)
            answers[key] = collect(engine, [request])[request.request_id].token_ids
        return answers[key]

    run_state_machine_as_test(
        lambda: EngineMachine(tiny_llama.engine, make_request, alone),
        settings=settings(max_examples=40, stateful_step_count=25, deadline=None),
    )
