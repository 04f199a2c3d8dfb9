from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from deepdraft.errors import UsageError
from deepdraft.simulate.options import add_arguments, spec_from_arguments
from deepdraft.simulate.spec import Confounds, Fault, Physics, SimulateSpec, Surface, spec_json


def spec(*words: str) -> SimulateSpec:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return spec_from_arguments(parser.parse_args(words))


def test_nothing_said() -> None:
    assert spec() == SimulateSpec()


def test_physics() -> None:
    given = spec(
        *("--prefill", "0.05,2e-4,1e-9", "--step", "8e-3,1e-7", "--committed", "0.2,0.3,0.5"),
        *("--kv-pool", "101134", "--max-context-len", "200k", "--set", "physics.page_size=16"),
    )
    assert given.physics == Physics(
        prefill_a_s=0.05,
        prefill_b_s=2e-4,
        prefill_c_s=1e-9,
        step_d_s=8e-3,
        step_e_s=1e-7,
        committed_len_probs=(0.2, 0.3, 0.5),
        kv_pool_tokens=101_134,
        max_context_len=200_000,
        page_size=16,
    )


def test_what_is_left_out_keeps_its_default() -> None:
    assert spec("--prefill", "0.1").physics == Physics(prefill_a_s=0.1)
    assert spec("--committed-pattern", "1,4,2,5").physics.committed_len_pattern == (1, 4, 2, 5)


def test_confounds_of_every_type() -> None:
    words = [
        "prefix_cache",
        "first_event_len=16",
        "ping_interval_s=0.5",
        "role_chunk=early",
        "prefix_cache_capacity=none",
    ]
    words += ["split_writes=true", "drift_frac=-0.01"]
    given = spec(*(word for name in words for word in ("--confound", name)))
    assert given.confounds == Confounds(
        prefix_cache=True,
        first_event_len=16,
        ping_interval_s=0.5,
        role_chunk="early",
        split_writes=True,
        drift_frac=-0.01,
    )


def test_faults() -> None:
    given = spec("--fault", "status,every=3,status=429,retry_after_s=1", "--fault", "cut,at=3+7,after_tokens=9")
    assert given.faults == (
        Fault(kind="status", every=3, status=429, retry_after_s=1),
        Fault(kind="cut", at=(3, 7), after_tokens=9),
    )


def test_flags_change_what_a_file_says(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    stored = SimulateSpec(dialect="vllm", physics=Physics(step_d_s=0.03), surface=Surface(model="m"))
    path.write_bytes(spec_json(stored))
    given = spec("--spec", str(path), "--prefill", "0.2", "--port", "8123", "--set", "surface.api_key=k")
    assert given.dialect == "vllm" and given.port == 8123
    assert given.physics == Physics(prefill_a_s=0.2, step_d_s=0.03)
    assert given.surface == Surface(model="m", api_key="k")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--confound", "nothing"), "no such name: 'nothing'"),
        (("--confound", "first_event_len"), "needs a value"),
        (("--confound", "first_event_len=many"), "first_event_len=many"),
        (("--confound", "role_chunk=late"), "role_chunk=late"),
        (("--confound", "coalesce_events=0"), "at least 1"),
        (("--prefill", "1,2,3,4"), "at most 3 numbers"),
        (("--step", "fast"), "not a list of numbers"),
        (("--committed", "0.5,0.4"), "sum to 1"),
        (("--fault", "explode"), "no such kind: 'explode'"),
        (("--fault", "cut,every"), "'every' is not NAME=VALUE"),
        (("--fault", "cut,when=3"), "no such name: 'when'"),
        (("--set", "physics.page_size"), "is not PART.NAME=VALUE"),
        (("--set", "engine.page_size=3"), "is not PART.NAME=VALUE"),
        (("--kv-pool", "much"), "not a number of tokens"),
        (("--spec", "/nowhere/spec.json"), "can't read the spec"),
    ],
)
def test_what_is_wrong_is_named(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        spec(*words)
    assert message in caught.value.message


def test_help_names_every_switch(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    parser.print_help()
    text = capsys.readouterr().out
    for name in ("prefix_cache", "split_writes", "kv_pool_tokens", "dev_mode", "error_in_stream", "after_tokens"):
        assert name in text
