"""Where a server is: a URL as people paste it, taken apart once. Opens nothing."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from deepdraft.errors import UsageError

_DEFAULT_PORT = {"http": 80, "https": 443}
_EXAMPLE = "for example http://127.0.0.1:8000 or https://host/prefix/v1"
# A scheme and `//`; without them `host:8000` would be read as the scheme `host`.
_HAS_SCHEME = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]*://")
# `/v1` and what follows it: /v1, /v1/models, /v1/chat/completions. Of several the last one counts.
_API_PATH = re.compile(r"^(.*)/v1(?:/.*)?$")
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f]")


@dataclass(frozen=True)
class Endpoint:
    """One server: where it listens and what stands before all of its paths."""

    scheme: str
    """`http` or `https`."""
    host: str
    """A name or an address, IPv6 without brackets."""
    port: int
    base_path: str = ""
    """`""` or `/prefix`, without a slash at its end; `/v1` is never part of it."""

    @property
    def is_tls(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """`host:port` as the Host header has it: IPv6 in brackets, without zone; a default port left out."""
        name = self.host.partition("%")[0]
        host = f"[{name}]" if ":" in name else name
        return host if self.port == _DEFAULT_PORT[self.scheme] else f"{host}:{self.port}"

    @property
    def address(self) -> str:
        """`host:port` for people; the port is always there, because it is so often what is wrong."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """`http://host:8000/prefix`, without a slash at its end."""
        return f"{self.scheme}://{self.authority}{self.base_path}"

    def target(self, path: str) -> str:
        """What stands in a request's first line for `path`, which begins with a slash: `/prefix/health`.

        Raises ValueError for a path that could not be sent as it is.
        """
        if not path.startswith("/") or not path.isascii() or _UNPRINTABLE.search(path):
            raise ValueError(f"not a path: {path!r}")
        return self.base_path + path


def endpoint(url: str) -> Endpoint:
    """Read a server's URL: `host:8000`, `http://[::1]:8000/`, `https://host/prefix/v1`.

    Without a scheme it is http. A pasted `/v1`, `/v1/models`, `/v1/chat/completions` and the like is taken off,
    so that `/prefix/v1/models` and `/prefix/health` can both be formed.
    Raises UsageError, which never repeats a password from the URL.
    """
    text = url.strip()
    if not text:
        raise UsageError("no URL given", hint=_EXAMPLE)
    if not _HAS_SCHEME.match(text):
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        _refuse_extras(parts, url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"not a URL: {_shown(url)} ({error})", hint=_EXAMPLE) from error
    scheme = parts.scheme.lower()
    if scheme not in _DEFAULT_PORT:
        raise UsageError(f"not a web address: {_shown(url)} (scheme {scheme!r})", hint="use http:// or https://")
    host = _host(parts, url)
    if port == 0:
        raise UsageError(f"not a port: 0, in {_shown(url)}")
    if _UNPRINTABLE.search(parts.path) or not parts.path.isascii():
        raise UsageError(f"a path with characters that must be escaped: {_shown(url)}")
    path = re.sub("/{2,}", "/", parts.path).rstrip("/")
    return Endpoint(
        scheme=scheme,
        host=host,
        port=port if port is not None else _DEFAULT_PORT[scheme],
        base_path=_API_PATH.sub(r"\1", path),
    )


def _refuse_extras(parts: SplitResult, url: str) -> None:
    """What a URL may hold but a server's address can't; before the port, which some of it would garble."""
    if "@" in parts.netloc:
        raise UsageError("a user name or password can't stand in the URL", hint="send it as a header instead")
    if parts.netloc.count(":") > 1 and not parts.netloc.startswith("["):
        raise UsageError(
            f"an IPv6 address needs brackets: {_shown(url)}", hint="write http://[::1]:8000, brackets included"
        )
    if parts.query or parts.fragment:
        raise UsageError(f"a query or fragment can't be part of the server's URL: {_shown(url)}", hint=_EXAMPLE)


def _host(parts: SplitResult, url: str) -> str:
    netloc = parts.netloc
    host = (parts.hostname or "").replace("%25", "%")
    if not host or _UNPRINTABLE.search(host):
        raise UsageError(f"no host in the URL: {_shown(url)}", hint=_EXAMPLE)
    if netloc.startswith("["):
        try:
            ipaddress.IPv6Address(host)
        except ValueError as error:
            raise UsageError(f"not an IPv6 address: {host}") from error
        return host
    if not host.isascii():
        try:
            return host.encode("idna").decode("ascii")
        except UnicodeError as error:
            raise UsageError(f"not a host name: {host}") from error
    return host


def _shown(url: str) -> str:
    """The URL as given, without what may be secret in it: a password, or a key in the query."""
    return repr(re.sub(r"[?#].*", "?…", re.sub(r"(^|//)[^/@]*@", r"\1…@", url.strip())))
