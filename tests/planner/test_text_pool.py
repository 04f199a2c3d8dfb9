"""What two pools say without a model, in words and as JSON."""

from __future__ import annotations

import json

import pytest

from deepdraft.planner.calibrate import calibration_of_two_pools, predicted_pool
from deepdraft.planner.settings import SglangSettings, VllmSettings
from deepdraft.planner.text_pool import pools_object, pools_text

LINE = calibration_of_two_pools((0.85, 101_134), (0.94, 218_484), SglangSettings())


def test_a_row_a_fraction() -> None:
    text = pools_text(LINE, [0.92, 0.93])
    assert "0.92    192,406" in text
    assert "0.93    205,445" in text
    assert "fit" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert "can't be said without the model" in text


@pytest.mark.parametrize(("margin_frac", "words"), [(0.0, "200,000 tokens fit"), (0.02, "and 2 % to spare fit")])
def test_from_where_a_wish_fits(margin_frac, words) -> None:
    text = pools_text(LINE, [0.9], 200_000, margin_frac)
    assert words in text
    fraction = float(text.split("from --mem-fraction-static ")[1].split(" on.")[0])
    assert predicted_pool(LINE, fraction) >= 200_000 * (1 + margin_frac) - 1
    assert predicted_pool(LINE, fraction - 0.001) < 200_000 * (1 + margin_frac)


def test_vllms_own_words() -> None:
    line = calibration_of_two_pools((0.8, 100_000), (0.9, 150_000), VllmSettings())
    assert "--gpu-memory-utilization" in pools_text(line, [0.85])


def test_as_json() -> None:
    found = json.loads(json.dumps(pools_object(LINE, [0.93, 0.92], 200_000, 0.02)))
    assert found["kv_pool_tokens"] == 205_445
    assert [one["kv_pool_tokens"] for one in found["pools"]] == [205_445, 192_406]
    assert found["fraction_for_target"] == pytest.approx(0.929)
    assert "fraction_for_target" not in pools_object(LINE, [0.9])
