"""The one tree of errors. Each says what is wrong in one line, may add a `hint` that says what to do, and ends
the command with the exit code of its class.

    DeepdraftError                     1
    ├── UsageError                     2   a flag or a value that can't be used
    ├── ServerError                    3   the server can't be used as it stands
    │   ├── Unreachable                3   nothing answers there
    │   ├── NotAnApi                   3   something answers, but not an inference API (HTML, a proxy's page)
    │   ├── Unauthorized               3   401 or 403
    │   └── ServerLost                 4   it answered before and no longer does
    ├── RequestFailed                  1   one request failed: kept as a failed measurement, never averaged
    │   ├── HttpStatus                 1   a status other than 200
    │   ├── ErrorInStream              1   HTTP 200, then an error object
    │   ├── StreamEndedEarly           1   neither [DONE] nor a finish_reason
    │   ├── Stalled                    1   nothing came within the limit
    │   └── EmptyStream                1   it ended properly, without a single token
    ├── ResultsError                   5   a results file that can't be read or written
    │   └── DiskFull                   5
    └── Interrupted                  130   Ctrl-C
"""

from __future__ import annotations


class DeepdraftError(Exception):
    """What went wrong, in one line; `hint` says what to do about it."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(DeepdraftError):
    """A flag or a value that can't be used."""

    exit_code = 2


class ServerError(DeepdraftError):
    """The server can't be used as it stands."""

    exit_code = 3


class Unreachable(ServerError):
    """Nothing answers at that address."""


class NotAnApi(ServerError):
    """Something answers there, but it is not an inference API."""


class Unauthorized(ServerError):
    """The server wants a key, or another one."""


class ServerLost(ServerError):
    """The server answered before and no longer does."""

    exit_code = 4


class RequestFailed(DeepdraftError):
    """One request failed. It is recorded as failed and takes no part in any figure."""


class HttpStatus(RequestFailed):
    """The server answered with a status other than 200; the message holds its own words."""

    def __init__(
        self, status: int, message: str, *, retry_after_s: float | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.retry_after_s = retry_after_s


class ErrorInStream(RequestFailed):
    """HTTP 200, then an error object among the events."""


class StreamEndedEarly(RequestFailed):
    """The stream ended with neither [DONE] nor a finish_reason."""


class Stalled(RequestFailed):
    """Nothing came within the limit."""


class EmptyStream(RequestFailed):
    """The stream ended properly, without a single token."""


class ResultsError(DeepdraftError):
    """A results file that can't be read or written."""

    exit_code = 5


class DiskFull(ResultsError):
    """No room for the next line; what was written before it stands."""


class Interrupted(DeepdraftError):
    """Ctrl-C. What was measured is kept."""

    exit_code = 130
