import pytest

from deepdraft.errors import UsageError
from deepdraft.planner.engines import ENGINES, engine_version


@pytest.mark.parametrize(
    ("asked", "taken"),
    [(None, "0.5.23"), ("0.5.23", "0.5.23"), ("0.6.0", "0.5.23"), ("0.5.12", "0.5.12"), ("v0.5.12.post1", "0.5.12"),
     ("0.5.14", "0.5.12"), ("0.4.9", "0.5.12"), ("0.5.12rc1", "0.5.12")],
)  # fmt: skip
def test_the_newest_function_that_is_not_newer(asked, taken):
    assert engine_version("sglang", asked).version == taken


def test_what_is_no_engine_and_no_version():
    with pytest.raises(UsageError) as refused:
        engine_version("tgi", None)
    assert "sglang" in (refused.value.hint or "")
    with pytest.raises(UsageError, match="not a version"):
        engine_version("sglang", "latest")


def test_versions_stand_from_old_to_new():
    for versions in ENGINES.values():
        numbers = [tuple(map(int, each.version.split("."))) for each in versions if each.version[0].isdigit()]
        assert numbers == sorted(numbers) and versions
