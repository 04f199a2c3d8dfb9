import pytest

from deepdraft.cost.config_field import (
    dtype_name,
    first_whole,
    quantised_bits,
    quantization,
    read_config,
    scale_bits,
    text_config,
    whole,
)
from deepdraft.errors import UsageError


@pytest.mark.parametrize("part", ["text_config", "llm_config", "language_config"])
def test_the_language_models_part(part):
    inner = {"hidden_size": 8}
    assert text_config({part: inner, "vision_config": {"hidden_size": 4}}) is inner
    assert text_config({"thinker_config": {part: inner}}) is inner
    assert text_config(inner) is inner
    assert text_config({part: {"something": 1}, "hidden_size": 8})["hidden_size"] == 8


def test_numbers_that_are_none():
    assert whole({"n": 3}, "n") == 3
    for value in (0, -1, 1.5, True, "3", None):
        with pytest.raises(UsageError, match="no usable n"):
            whole({"n": value}, "n")
    assert first_whole({"a": None, "b": True, "c": 0, "d": 4}, ("a", "b", "c", "d")) == 0
    assert first_whole({}, ("a",)) is None


@pytest.mark.parametrize(
    ("stated", "bits", "scales"),
    [
        ({"config_groups": {"g": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}}}, 4, 0.5),
        ({"config_groups": {"g": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}}}, 4, 0.5),
        ({"quant_method": "mxfp4"}, 4, 0.25),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8, 32 / 16384),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4, 0.125),
        ({"quant_algo": "NVFP4", "group_size": 16}, 4, 0.5),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, 8, 0.0),
        ({}, None, 0.0),
    ],
)
def test_bits_of_weights_and_of_their_scales(stated, bits, scales):
    assert quantised_bits(stated) == bits
    assert scale_bits(stated) == scales


def test_quantisation_and_dtype_wherever_they_stand():
    assert quantization({"text_config": {"hidden_size": 1, "quantization_config": {"bits": 4}}}) == {"bits": 4}
    assert quantization({}) == {}
    assert dtype_name({"text_config": {"hidden_size": 1, "dtype": "torch.float16"}, "dtype": "bfloat16"}) == "float16"
    assert dtype_name({"torch_dtype": "float32"}) == "float32"
    assert dtype_name({}) == "bfloat16"


def test_what_is_no_config(tmp_path):
    path = tmp_path / "config.json"
    for text in ("[]", "{", ""):
        path.write_text(text)
        with pytest.raises(UsageError):
            read_config(path)
    with pytest.raises(UsageError, match="can't read"):
        read_config(tmp_path / "none.json")
