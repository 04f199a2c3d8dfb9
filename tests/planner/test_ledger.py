from hypothesis import given
from hypothesis import strategies as st

from deepdraft.planner.ledger import Ledger, LedgerEntry

PLACES = ("outside", "weights", "pool", "slack", "spike")
ENTRIES = st.lists(
    st.builds(
        LedgerEntry,
        name=st.just("something"),
        num_bytes=st.integers(-(10**9), 10**12),
        place=st.sampled_from(PLACES),
        certainty=st.sampled_from(["exact", "formula", "estimate", "measured"]),
        source=st.just("somewhere"),
        error_bytes=st.integers(0, 10**9),
    ),
    max_size=12,
)


@given(ENTRIES)
def test_the_places_share_out_the_whole(entries):
    ledger = Ledger(tuple(entries))
    assert sum(ledger.total_bytes(place) for place in PLACES) == ledger.total_bytes(*PLACES)
    assert ledger.error_bytes(*PLACES) == sum(entry.error_bytes for entry in entries)
    assert sorted(map(repr, ledger.at(*PLACES))) == sorted(map(repr, entries))
    assert ledger.at("pool") == tuple(entry for entry in entries if entry.place == "pool")
