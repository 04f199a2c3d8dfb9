import pytest

from deepdraft.cost.device import DEVICES, device, known_device
from deepdraft.errors import UsageError


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("H100", "H100"),
        ("h-200", "H200"),
        ("RTX PRO 6000", "RTX PRO 6000 Blackwell"),
        ("rtx pro 6000 blackwell", "RTX PRO 6000 Blackwell"),
        ("a100 80gb", "A100 80GB"),
        ("l4", "L4"),
    ],
)
def test_a_device_is_found_by_name_or_by_a_part_that_fits_one(text, name):
    assert device(text).name == name


@pytest.mark.parametrize(("text", "why"), [("A100", "several"), ("TPU v9", "not a device"), ("", "not a device")])
def test_a_name_that_fits_none_or_several_is_refused_with_the_names(text, why):
    with pytest.raises(UsageError, match=why) as refused:
        device(text)
    assert "A100 80GB" in (refused.value.hint or "")


def test_a_device_by_its_figures():
    made = device("bandwidth=1.8TB/s, flops=500TFLOP/s,memory=96GB")
    assert (made.bandwidth_bytes_s, made.flops, made.memory_bytes) == (1.8e12, 500e12, 96e9)
    assert device("bandwidth=900e9").bandwidth_bytes_s == 900e9
    assert device("bandwidth=900GB/s,memory=95.5GiB").memory_bytes == 95.5 * 2**30
    assert device("bandwidth=900GB/s,memory=97887MiB").memory_bytes == 97_887 * 2**20
    assert device("bandwidth=900GB/s").flops is None


@pytest.mark.parametrize("text", ["flops=1T", "bandwidth=fast", "speed=3", "bandwidth=0GB/s", "bandwidth="])
def test_figures_that_cannot_be_used_are_refused(text):
    with pytest.raises(UsageError):
        device(text)


def test_a_device_named_in_free_text():
    named = known_device("8 x RTX PRO 6000 Blackwell")
    assert named is not None and named.name == "RTX PRO 6000 Blackwell"
    assert known_device("4 x RTX 4090") is not None
    assert known_device("an H100 and an H200") is None
    assert known_device("a laptop") is None
    assert known_device("L40S") is not None, "L4 is a part of its name and not meant"


def test_what_is_attained_lies_between_the_measured_lengths():
    card = device("RTX PRO 6000")
    at = card.attained_bytes_s
    assert at(1_000) == at(32_768) == pytest.approx(0.23 * 1.792e12)
    assert at(32_768) < at(49_152) < at(65_536)  # type: ignore[operator]
    assert at(500_000) == at(131_072)
    assert device("L4").attained_bytes_s(1_000) is None


@pytest.mark.parametrize("each", DEVICES, ids=lambda each: each.name)
def test_the_catalogue_is_sane(each):
    assert 1e11 < each.bandwidth_bytes_s < 2e13
    assert each.flops is not None and 5e13 < each.flops < 5e15
    assert each.memory_bytes is not None and 2e10 < each.memory_bytes < 3e11
    assert all(attained.bytes_s < each.bandwidth_bytes_s for attained in each.attained)


@pytest.mark.parametrize(
    ("name", "mib"), [("RTX PRO 6000", 97_887), ("H100", 81_559), ("H200", 143_771), ("A100 80GB", 81_920)]
)
def test_memory_is_what_the_driver_tells(name, mib):
    """A card of 96 GB has neither 96 x 10^9 bytes nor 96 GiB."""
    assert device(name).memory_bytes == mib * 2**20
