import dataclasses

from report_builder import reference, sweep

from deepdraft.report.environment import facts_of


def facts(run):
    return {fact.label: fact.text for fact in facts_of(run)}


def test_what_is_known_is_listed_and_nothing_else():
    run = sweep(max_context_len=131_072, settings={"tp_size": 8, "cache": {"kind": "radix", "is_on": True}})
    run = dataclasses.replace(run, header=dataclasses.replace(run.header, environment={"python": "3.11.9"}))
    found = facts(run)
    assert found["engine"] == "llamacpp b1"
    assert found["context limit"] == "131,072 tokens (131k)"
    assert found["server: cache.kind"] == "radix" and found["server: cache.is_on"] == "true"
    assert found["client: python"] == "3.11.9"
    assert found["command"] == "deepdraft sweep http://127.0.0.1:8080"
    assert "KV pool" not in found and "device" not in found


def test_a_reported_table_names_its_source_and_claims_no_method():
    found = facts(reference().run)
    assert found["reported by"] == "a published table"
    assert "repeats" not in found and "method" not in found
    assert "mem-fraction-static 0.85" in "".join(
        text for label, text in found.items() if label.startswith("note: memory")
    )
