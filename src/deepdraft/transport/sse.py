"""An incremental reader of server-sent events that works on bytes, by the WHATWG rules.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html, "Parsing an event stream" and
"Interpreting an event stream". Three things differ, each on purpose: data stays bytes (the caller decodes
whole events, so a character cut by a read is never seen), comments are handed out too (they are counted, and
tell a silent server from a waiting one), and what an ended stream left incomplete is handed back by `close`
instead of being dropped.

Leaves out: time (the caller stamps what it feeds), reconnecting, and the meaning of the data.
"""

from __future__ import annotations

import msgspec

_BOM = b"\xef\xbb\xbf"
_MAX_RETRY_DIGITS = 15


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event, or one comment line.

    A Struct rather than a dataclass because one is made for every token of every stream.
    """

    data: bytes
    """The data lines joined by LF, undecoded; for a comment the text after its colon."""
    event: str | None = None
    """The event's type; None when the stream did not say (the standard's "message")."""
    is_comment: bool = False


class EventReader:
    """Feed it bytes as they come; each call returns the events those bytes completed, in order.

    An event is complete with its blank line, a comment with its own line end. Work and memory are linear in
    the bytes fed, however they are cut. No input raises.
    """

    last_event_id: bytes | None
    """The last `id:` of a complete event; None when none was sent."""
    retry_ms: int | None
    """The last valid `retry:` of a complete event, in ms; None when none was sent."""

    def __init__(self) -> None:
        self.last_event_id = None
        self.retry_ms = None
        self._lines: list[bytes] = []  # complete lines of the open event, without ends and comments
        self._partial = bytearray()  # the open line
        self._may_start = True  # nothing but the beginning of a byte order mark was seen so far
        self._skip_lf = False  # the last byte was a CR: an LF now belongs to it
        self._is_clean = False  # nothing is pending: the fast path may be taken

    @property
    def is_within_event(self) -> bool:
        """Has an event begun that is not complete? A comment is no event."""
        return bool(self._lines) or (bool(self._partial) and self._partial[0] != 58)

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completed; a CR ends its line at once, an LF after it is swallowed."""
        # Nearly every read of an inference server holds whole events of one `data: ` line each.
        if self._is_clean and data[-2:] == b"\n\n" and b"\r" not in data:
            events = []
            for block in data[:-2].split(b"\n\n"):
                if block[:6] != b"data: " or b"\n" in block:
                    break
                events.append(Event(block[6:]))
            else:
                return events
        return self._feed_lines(data)

    def close(self) -> bytes:
        """End the stream: the bytes of the event that no blank line completed, b"" after a whole event.

        Line ends read as LF. Comments are left out, since they were handed out. The reader is as new
        afterwards, apart from `last_event_id` and `retry_ms`.
        """
        left = b"".join(line + b"\n" for line in self._lines) + bytes(self._partial)
        self._lines.clear()
        self._partial.clear()
        self._may_start, self._skip_lf, self._is_clean = True, False, False
        return left

    def _feed_lines(self, data: bytes) -> list[Event]:
        if self._may_start:
            data = self._without_bom(data)
        if self._skip_lf and data:
            self._skip_lf = False
            if data[0] == 10:
                data = data[1:]
        if not data:
            self._note_state()
            return []
        if b"\n" not in data and b"\r" not in data:
            self._partial += data
            self._is_clean = False
            return []
        lines = data.splitlines()  # of bytes: cut at LF, CR and CRLF, nothing else
        if self._partial:
            self._partial += lines[0]
            lines[0] = bytes(self._partial)
            self._partial.clear()
        if data[-1] == 13:
            self._skip_lf = True
        elif data[-1] != 10:
            self._partial += lines.pop()
        events = []
        for line in lines:
            if line:
                if line[0] == 58:  # a colon first: a comment
                    events.append(Event(_value(line, 0), None, True))
                else:
                    self._lines.append(line)
            elif self._lines:
                event = self._finished_event()
                if event is not None:
                    events.append(event)
        self._note_state()
        return events

    def _note_state(self) -> None:
        self._is_clean = not (self._lines or self._partial or self._skip_lf or self._may_start)

    def _without_bom(self, data: bytes) -> bytes:
        """Take one byte order mark off the start of the stream, even when it comes in pieces."""
        data = bytes(self._partial) + data
        self._partial.clear()
        if len(data) < len(_BOM) and _BOM.startswith(data):
            self._partial += data
            return b""
        self._may_start = False
        return data.removeprefix(_BOM)

    def _finished_event(self) -> Event | None:
        """Interpret the lines gathered up to a blank one; None when none of them was a data line."""
        values: list[bytes] = []
        event_type: bytes = b""
        for line in self._lines:
            if line.startswith(b"data:"):
                values.append(_value(line, 4))
            elif line.startswith(b"event:"):
                event_type = _value(line, 5)
            elif line.startswith(b"id:"):
                if b"\0" not in line:
                    self.last_event_id = _value(line, 2)
            elif line.startswith(b"retry:"):
                digits = _value(line, 5)
                if digits.isdigit() and len(digits) <= _MAX_RETRY_DIGITS:
                    self.retry_ms = int(digits)
            elif line == b"data":
                values.append(b"")
            elif line == b"event":
                event_type = b""
            elif line == b"id":
                self.last_event_id = b""
        self._lines.clear()
        if not values:
            return None
        data = values[0] if len(values) == 1 else b"\n".join(values)
        return Event(data, event_type.decode("utf-8", "replace") or None)


def _value(line: bytes, colon_index: int) -> bytes:
    """What follows the colon, without the one space that may stand after it."""
    start = colon_index + 1
    return line[start + 1 :] if line[start : start + 1] == b" " else line[start:]
