"""Prometheus' text format, as servers write it and as it may be written."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from deepdraft.adapters.prometheus import metrics_page


def test_labels_with_everything_that_is_escaped() -> None:
    text = r'm{path="C:\\dir\n",quote="say \"hi\" {a=1}, b", empty=""} 3' + "\n"
    sample = metrics_page(text, ["m"]).first("m")
    assert sample is not None
    assert sample.labels == {"path": "C:\\dir\n", "quote": 'say "hi" {a=1}, b', "empty": ""}
    assert sample.value == 3


def test_timestamps_exemplars_and_special_values() -> None:
    text = 'a 1.5 1700000000\nb_total 7 # {trace_id="x"} 0.5 123\nc NaN\nd +Inf\ne{} 2\nf{x="1",} 3\n'
    page = metrics_page(text, ["a", "b_total", "c", "d", "e", "f"])
    assert page.values("a") == (1.5,)
    assert page.values("b_total") == (7.0,)
    assert page.values("c") == ()
    assert page.values("d") == (math.inf,)
    assert page.values("e") == (2.0,)
    assert page.values("f") == (3.0,)


def test_broken_lines_are_skipped() -> None:
    text = 'm\nm \nm{x="1" 5\nm{x=1} 5\nm{x="1"} five\n{} 3\nm{x="1"} 4\n'
    assert metrics_page(text, ["m"]).values("m") == (4.0,)


def test_a_declared_family_without_series_is_zero_and_an_unknown_one_is_unknown() -> None:
    page = metrics_page("# HELP hits_total x\n# TYPE hits_total counter\n# TYPE other counter\n", ["hits_total"])
    assert page.total("hits_total") == 0.0
    assert page.total("other_total") == 0.0  # OpenMetrics declares a counter without its _total
    assert page.total("misses_total") is None


def test_parts_are_added_and_copies_are_not() -> None:
    text = (
        'n{dp_rank="0",tp_rank="0"} 3\nn{dp_rank="0",tp_rank="1"} 3\n'
        'n{dp_rank="1",tp_rank="0"} 5\nn{dp_rank="1",tp_rank="1"} 4\n'
    )
    page = metrics_page(text, ["n"])
    assert page.total("n") == 15
    assert page.total("n", {"tp_rank"}) == 8  # 3 + 5: of ranks that report the same, the one furthest on
    assert page.total("n", {"tp_rank"}, dp_rank="1") == 5


def test_recorded_pages(recorded: Any) -> None:
    sglang = metrics_page(recorded.text("sglang-0.5.23/metrics.txt"), ["sglang:prompt_tokens_total"])
    assert sglang.total("sglang:prompt_tokens_total") == 17153
    vllm = metrics_page(recorded.text("vllm-0.32.0/metrics_specdecode_ngram.txt"), ["vllm:cache_config_info"])
    config = vllm.first("vllm:cache_config_info")
    assert config is not None
    assert config.labels["kv_cache_size_tokens"] == "1048576"
    assert vllm.has("vllm:spec_decode_num_drafts_total")


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(max_size=20), max_size=4), st.floats())
def test_what_is_written_is_read(labels: dict[str, str], value: float) -> None:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    inner = ",".join(f'{name}="{escaped(text)}"' for name, text in labels.items())
    sample = metrics_page(f"other 1\nm{{{inner}}} {value!r}\nother 2\n", ["m"]).first("m")
    assert sample is not None
    assert sample.labels == labels
    assert sample.value == value or (math.isnan(value) and math.isnan(sample.value))


@given(st.text(alphabet='m{}="\\ \n#1', max_size=60))
def test_no_text_raises(text: str) -> None:
    metrics_page(text, ["m"]).total("m")
