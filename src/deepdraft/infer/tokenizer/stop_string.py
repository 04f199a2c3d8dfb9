"""Stop strings in text that comes in pieces (Knuth, Morris and Pratt 1977: one state for each string).

A state says how many characters at the end of the text so far are a beginning of its stop string, so the longest
state is exactly what has to be held back, and no character is looked at twice.
"""

from __future__ import annotations


class StopFinder:
    """Hands text on, until the stop string that is completed first; of two completed at once the longer counts."""

    def __init__(self, stop: tuple[str, ...]) -> None:
        if not all(stop):
            raise ValueError("an empty stop string would stop everything")
        self.found: str | None = None
        """The stop string that ended the text."""
        self._matchers = [_Matcher(string) for string in stop]
        self._held = ""

    def push(self, text: str, *, can_stop: bool = True) -> str:
        """The text that can be handed out now. With can_stop off all of it, and matching begins anew."""
        if self.found is not None:
            return ""
        if not self._matchers:
            return text
        if not can_stop:
            return self.finish() + text
        pending = self._held + text
        for index, character in enumerate(text, start=len(self._held) + 1):
            complete = [matcher for matcher in self._matchers if matcher.is_completed_by(character)]
            if complete:
                self.found = max((matcher.string for matcher in complete), key=len)
                self._held = ""
                return pending[: index - len(self.found)]
        cut = len(pending) - max(matcher.num_matched for matcher in self._matchers)
        self._held = pending[cut:]
        return pending[:cut]

    def finish(self) -> str:
        """What was held back; matching begins anew."""
        held, self._held = self._held, ""
        for matcher in self._matchers:
            matcher.num_matched = 0
        return held


class _Matcher:
    def __init__(self, string: str) -> None:
        self.string = string
        self.num_matched = 0
        self._borders = _borders(string)

    def is_completed_by(self, character: str) -> bool:
        """Take the next character; True when it is the string's last."""
        while self.num_matched and self.string[self.num_matched] != character:
            self.num_matched = self._borders[self.num_matched - 1]
        if self.string[self.num_matched] == character:
            self.num_matched += 1
        return self.num_matched == len(self.string)


def _borders(string: str) -> list[int]:
    """For each prefix, the length of its longest proper prefix that is also its suffix."""
    borders = [0] * len(string)
    for end in range(1, len(string)):
        length = borders[end - 1]
        while length and string[length] != string[end]:
            length = borders[length - 1]
        borders[end] = length + (string[length] == string[end])
    return borders
