from deepdraft.cost.device import device
from deepdraft.planner.engines import plan_for
from deepdraft.planner.open_model import open_model
from deepdraft.planner.settings import SglangSettings
from deepdraft.planner.sglang_cell import sglang_cell
from deepdraft.planner.sglang_choice import sglang_choice
from deepdraft.planner.sglang_pool import pool_of

GIB = 2**30
HYBRID, LATENT = open_model("qwen3-next-80b-a3b"), open_model("kimi-k2.6")


def pooled(model, budget_gib, version="0.5.12", **flags):
    choice = sglang_choice(version, model, device("H200"), SglangSettings(tp_size=8, **flags))
    cell = sglang_cell(choice)
    return choice, cell, pool_of(choice, cell, round(budget_gib * GIB))


def test_a_budget_in_tokens():
    _, _, pool = pooled(LATENT, 10)
    assert pool.num_tokens == 10 * GIB // 70_272
    assert pooled(LATENT, 10, page_size=64)[2].num_tokens == 10 * GIB // 70_272 // 64 * 64
    assert pooled(LATENT, -1)[2].num_tokens == 0


def test_states_take_their_ratio_of_the_budget():
    """0.9 to 1 of the rest unless told otherwise; three slots for each running request."""
    _, cell, pool = pooled(HYBRID, 10)
    assert pool.num_state_slots == int(10 * GIB * 0.9 / 1.9) // cell.fixed
    used = pool.num_tokens * cell.counted + pool.state_bytes
    assert 0 <= 10 * GIB - used < cell.counted
    assert pool.max_running == min(4096, pool.num_state_slots // 3)
    fewer = pooled(HYBRID, 10, mamba_full_memory_ratio=0.2)[2]
    assert fewer.num_tokens > pool.num_tokens and fewer.num_state_slots < pool.num_state_slots


def test_verification_keeps_a_state_for_every_draft_token():
    from dataclasses import replace

    from deepdraft.planner.drafter_config import mtp_drafter

    model = replace(HYBRID, drafter=mtp_drafter(HYBRID))
    flags = {"max_running_requests": 8, "speculative_algorithm": "NEXTN", "speculative_num_draft_tokens": 4}
    _, cell, pool = pooled(model, 10, **flags)
    assert pool.state_bytes == (pool.num_state_slots + 8 * 4) * cell.fixed
    newer = pooled(model, 10, version="0.5.23", **flags)[2]
    assert newer.state_bytes == (newer.num_state_slots + 1 + (8 + 1) * 4) * cell.fixed
    assert newer.state_bytes <= 10 * GIB * 0.9 / 1.9
    assert pool.num_tokens < pooled(model, 10, max_running_requests=8)[2].num_tokens


def test_how_many_requests_may_run():
    assert pooled(LATENT, 10)[2].max_running == 2048
    assert pooled(LATENT, 60, context_length=80_000)[2].max_running == 4096
    assert pooled(LATENT, 10, max_running_requests=8)[2].max_running == 8
    assert pooled(LATENT, 0.05)[2].max_running == 2048
    small = pooled(LATENT, 0.05, version="0.5.23")[2]
    assert small.max_running == small.num_tokens // 2


def test_requests_of_the_whole_context_by_both_pools():
    plan = plan_for("sglang", None, open_model("gemma-3-27b"), device("H200"), SglangSettings(context_length=1500))
    swa_tokens = int(plan.kv_pool_tokens * 0.8)
    assert plan.num_full_requests == min(plan.kv_pool_tokens // 1500, swa_tokens // 1024)
