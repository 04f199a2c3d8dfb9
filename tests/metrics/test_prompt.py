from trace_builder import trace

from deepdraft.metrics import cached_tokens, prompt_tokens, uncached_prompt_tokens

TOKEN = [(0.1, "t")]


def test_usage_comes_first():
    one = trace(TOKEN, prompt=1000, cached=24, server_fields={"timings": {"prompt_n": 1, "cache_n": 1}})
    assert (prompt_tokens(one), cached_tokens(one), uncached_prompt_tokens(one)) == (1000, 24, 976)


def test_unknown_is_not_zero():
    one = trace(TOKEN, usage=1)
    assert prompt_tokens(one) is None
    assert cached_tokens(one) is None
    assert uncached_prompt_tokens(one) is None


def test_untold_cached_tokens_leave_all_uncached_but_unknown():
    one = trace(TOKEN, prompt=1000)
    assert cached_tokens(one) is None
    assert uncached_prompt_tokens(one) == 1000


def test_the_engines_own_fields_stand_in():
    llamacpp = trace(TOKEN, server_fields={"timings": {"prompt_n": 1280, "cache_n": 24}})
    assert (prompt_tokens(llamacpp), cached_tokens(llamacpp)) == (1304, 24)
    native = trace(TOKEN, server_fields={"meta_info": {"prompt_tokens": 5, "cached_tokens": 4}})
    assert (prompt_tokens(native), cached_tokens(native)) == (5, 4)
    details = {"cached_tokens_details": {"device": 96, "host": 32, "storage": "none"}}
    assert cached_tokens(trace(TOKEN, server_fields={"sglext": details})) == 128


def test_nonsense_is_unknown():
    for fields in ({"timings": 3}, {"timings": {"cache_n": True}}, {"sglext": {"cached_tokens_details": []}}):
        assert cached_tokens(trace(TOKEN, server_fields=fields)) is None
