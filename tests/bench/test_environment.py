from __future__ import annotations

import msgspec

from deepdraft.bench.environment import environment


def test_it_can_be_written_down_and_names_what_we_are_built_on() -> None:
    found = msgspec.json.decode(msgspec.json.encode(environment()))
    assert found["packages"]["httptools"]
    assert found["packages"]["msgspec"]
    assert found["num_cores"] >= 1
    assert found["python"].startswith("3.")


def test_it_tells_nothing_of_the_variables(monkeypatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "s3cret-of-the-environment")
    assert "s3cret" not in msgspec.json.encode(environment()).decode()
