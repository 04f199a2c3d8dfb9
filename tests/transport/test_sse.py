"""The event reader against a plain reference of the WHATWG rules, random cuts, fuzz and recorded streams."""

from __future__ import annotations

import itertools
import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepdraft.transport.sse import Event, EventReader

# A busy machine may take its time over one example.
many = settings(deadline=None, max_examples=500)
some = settings(deadline=None, max_examples=60)

SAMPLES = sorted((Path(__file__).parents[1] / "samples").glob("*/*.sse"))


def reference(stream: bytes) -> list[Event]:
    """The standard's rules line by line over the whole stream, knowing nothing of reads."""
    *lines, _ = re.split(rb"\r\n|\n|\r", stream.removeprefix(b"\xef\xbb\xbf"))
    events: list[Event] = []
    values: list[bytes] = []
    event_type = b""
    for line in lines:
        field, colon, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if line == b"":
            if values:
                events.append(Event(b"\n".join(values), event_type.decode(errors="replace") or None))
            values, event_type = [], b""
        elif colon and field == b"":
            events.append(Event(value, None, True))
        elif field == b"data":
            values.append(value)
        elif field == b"event":
            event_type = value
    return events


def read(pieces: list[bytes]) -> tuple[list[Event], bytes]:
    reader = EventReader()
    events = [event for piece in pieces for event in reader.feed(piece)]
    return events, reader.close()


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    borders = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(borders)]


def data_of(stream: bytes) -> list[bytes]:
    return [event.data for event in read([stream])[0] if not event.is_comment]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\n", [Event(b"a")]),
        (b"data:a\n\n", [Event(b"a")]),
        (b"data:  a\n\n", [Event(b" a")]),
        (b"data\n\n", [Event(b"")]),
        (b"data:\n\n", [Event(b"")]),
        (b"data\ndata\n\n", [Event(b"\n")]),
        (b"data: a\ndata: b\n\n", [Event(b"a\nb")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [Event(b"a"), Event(b"b")]),
        (b"data: a\r\rdata: b\r\r", [Event(b"a"), Event(b"b")]),
        (b"data: a\n\r\ndata: b\r\n\n", [Event(b"a"), Event(b"b")]),
        (b"\n\n\ndata: a\n\n\n\n", [Event(b"a")]),
        (b": ping\n\n", [Event(b"ping", None, True)]),
        (b":\n\n", [Event(b"", None, True)]),
        (b"data: a\n: ping\ndata: b\n\n", [Event(b"ping", None, True), Event(b"a\nb")]),
        (b"event: error\ndata: a\n\ndata: b\n\n", [Event(b"a", "error"), Event(b"b")]),
        (b"event: error\nevent\ndata: a\n\n", [Event(b"a")]),
        (b"event: lost\n\ndata: a\n\n", [Event(b"a")]),
        (b"event: \xff\ndata: a\n\n", [Event(b"a", "\ufffd")]),
        (b"\xef\xbb\xbfdata: a\n\n", [Event(b"a")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
        (b"datum: a\nDATA: a\n data: a\n\n", []),
        (b"data: a\x0bb\x0c\x1c\x85\xe2\x80\xa8c\n\n", [Event(b"a\x0bb\x0c\x1c\x85\xe2\x80\xa8c")]),
        (b"data: a\n\ndata: b\rdata: c\n\n", [Event(b"a"), Event(b"b\nc")]),
        (b"data: xdata: y\n\n", [Event(b"xdata: y")]),
        (b"data: a\n", []),
        (b"", []),
    ],
)
def test_the_standards_rules(stream: bytes, expected: list[Event]) -> None:
    assert read([stream])[0] == expected
    assert read([bytes([byte]) for byte in stream])[0] == expected
    # After a first event the reader may take its short way; the rules stay the same.
    rest = stream.removeprefix(b"\xef\xbb\xbf")
    for place in range(len(rest) + 1):
        events, _ = read([b"data: first\n\n", rest[:place], rest[place:]])
        assert events == reference(b"data: first\n\n" + rest)


def test_id_and_retry_are_kept_from_complete_events_only() -> None:
    reader = EventReader()
    assert (reader.last_event_id, reader.retry_ms) == (None, None)
    reader.feed(b"id: 7\nretry: 300\ndata: a\n\n")
    assert (reader.last_event_id, reader.retry_ms) == (b"7", 300)
    reader.feed(b"id: 8\0\nretry: 3s\n\nid: 9\nretry: 5\n")
    assert (reader.last_event_id, reader.retry_ms) == (b"7", 300)
    reader.feed(b"id\nretry: " + b"9" * 5000 + b"\n\n")
    assert (reader.last_event_id, reader.retry_ms) == (b"", 5)


def test_a_cr_completes_its_line_at_once() -> None:
    reader = EventReader()
    assert reader.feed(b"data: a\r\n\r") == [Event(b"a")]
    assert reader.feed(b"\n") == []
    assert reader.feed(b"data: b\n\n") == [Event(b"b")]
    assert reader.close() == b""


@pytest.mark.parametrize(
    ("stream", "left"),
    [
        (b"data: a\n\n", b""),
        (b"data: a\n\n\n: ping\n", b""),
        (b"data: a\n\ndata: b\n", b"data: b\n"),
        (b"data: a\n\nid: 4\r\n: ping\r\ndata: {", b"id: 4\ndata: {"),
        (b"data: a\n\n: pi", b": pi"),
        (b"\xef\xbb", b"\xef\xbb"),
    ],
)
def test_close_hands_back_what_was_cut(stream: bytes, left: bytes) -> None:
    assert read([stream])[1] == left
    assert read([bytes([byte]) for byte in stream])[1] == left


def test_is_within_event_tells_an_open_event_from_a_comment() -> None:
    reader = EventReader()
    seen = []
    for piece in (b"data: a\n\n", b": pi", b"ng\n", b"\n", b"da", b"ta: b", b"\n", b"\n"):
        reader.feed(piece)
        seen.append(reader.is_within_event)
    assert seen == [False, False, False, False, True, True, True, False]


def test_a_closed_reader_is_as_new() -> None:
    reader = EventReader()
    reader.feed(b"data: a\r")
    reader.close()
    assert reader.feed(b"\xef\xbb\xbf\ndata: b\n\n") == [Event(b"b")]


line = st.one_of(
    st.sampled_from([b"", b"", b"data", b":", b": ping", b"event: error", b"id: 3", b"retry: 10", b"data: [DONE]"]),
    st.text(max_size=12).map(lambda text: b"data: " + re.sub(rb"[\r\n]", b" ", text.encode())),
    st.text(max_size=8).map(lambda text: b"data:" + re.sub(rb"[\r\n]", b"", text.encode())),
    st.binary(max_size=6),
)
line_end = st.sampled_from([b"\n", b"\r\n", b"\r"])
random_stream = st.builds(
    lambda bom, lines, tail: bom + b"".join(text + end for text, end in lines) + tail,
    st.sampled_from([b"", b"", b"\xef\xbb\xbf", b"\xef\xbb"]),
    st.lists(st.tuples(line, line_end), max_size=25),
    st.binary(max_size=4),
)
usual_stream = st.builds(
    lambda texts, end: b"".join(
        b"data: " + json.dumps(text, ensure_ascii=False).encode() + end * 2 for text in texts
    ),
    st.lists(st.text(max_size=12), max_size=20),
    line_end,
)
places = st.lists(st.integers(min_value=0, max_value=10_000), max_size=30)


@given(stream=st.one_of(random_stream, usual_stream), places=places)
@many
def test_any_cut_gives_what_the_reference_gives(stream: bytes, places: list[int]) -> None:
    events, left = read(cut(stream, places))
    assert events == reference(stream)
    assert (events, left) == read([stream])


@given(texts=st.lists(st.text(max_size=12)), places=places, end=line_end, space=st.sampled_from([b"", b" "]))
@many
def test_what_was_written_is_read(texts: list[str], places: list[int], end: bytes, space: bytes) -> None:
    written = [json.dumps(text, ensure_ascii=False).encode() for text in texts]
    stream = b"".join(b"data:" + space + data + end + end for data in written)
    events, left = read(cut(stream, places))
    assert [event.data for event in events] == written
    assert left == b""


@given(pieces=st.lists(st.binary(max_size=40)))
@many
def test_no_bytes_raise(pieces: list[bytes]) -> None:
    assert read(pieces)[0] == reference(b"".join(pieces))


@given(
    pieces=st.lists(
        st.lists(
            st.sampled_from(
                [b"\n", b"\r", b":", b" ", b"data", b"event", b"id", b"retry", b"\xef", b"\xbb\xbf", b"\0"]
            )
        ).map(b"".join)
    )
)
@many
def test_no_mix_of_the_formats_own_marks_raises(pieces: list[bytes]) -> None:
    assert read(pieces)[0] == reference(b"".join(pieces))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: f"{path.parent.name}/{path.stem}")
@given(places=places)
@some
def test_recorded_streams_under_random_cuts(path: Path, places: list[int]) -> None:
    stream = path.read_bytes()
    for variant in (stream, stream.replace(b"\n", b"\r\n"), stream.replace(b"data: ", b"data:")):
        events, left = read(cut(variant, places))
        payloads = [event.data for event in events if not event.is_comment]
        assert payloads == [line[6:] for line in stream.split(b"\n") if line.startswith(b"data: ")]
        assert all(payload == b"[DONE]" or isinstance(json.loads(payload), dict) for payload in payloads)
        assert left == b""


def test_there_are_recorded_streams_of_four_engines() -> None:
    assert len({path.parent.name.partition("-")[0] for path in SAMPLES}) >= 4


@pytest.mark.parametrize("piece_bytes", [64, 1_000, 65_536])
def test_a_large_event_costs_no_more_than_its_size(piece_bytes: int) -> None:
    payload = b"x" * (10_000_000 if piece_bytes > 64 else 3_000_000)
    stream = b"data: " + payload + b"\n\n"
    reader = EventReader()
    events: list[Event] = []
    started_s = time.process_time()
    for start in range(0, len(stream), piece_bytes):
        events += reader.feed(stream[start : start + piece_bytes])
    cpu_s = time.process_time() - started_s
    assert [event.data for event in events] == [payload]
    assert cpu_s < 1.5  # linear: 0.05 s; copying what is pending at every piece would take 10 s and more


def test_an_event_of_many_lines_costs_no_more_than_its_size() -> None:
    reader = EventReader()
    started_s = time.process_time()
    for _ in range(100_000):
        reader.feed(b"data: 0123456789\n")
    (event,) = reader.feed(b"\n")
    cpu_s = time.process_time() - started_s
    assert len(event.data) == 100_000 * 11 - 1
    assert cpu_s < 1.5
