"""The flags that say where the server is and how to be let in; shared by `sweep` and `servers`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepdraft.errors import UsageError
from deepdraft.records.redact import REDACTED, redacted, redacted_command_line

if TYPE_CHECKING:
    from deepdraft.transport.tls import TlsOptions

ENGINES = ("auto", "openai", "deepdraft", "sglang", "vllm", "llamacpp", "tensorrt_llm", "lmdeploy", "ollama", "tgi")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Headers and TLS options of every request; `admin_headers` for routes that want the admin key."""

    headers: Mapping[str, str] = field(default_factory=dict)
    admin_headers: Mapping[str, str] = field(default_factory=dict)
    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    is_insecure: bool = False

    @property
    def tls(self) -> TlsOptions:
        """As the transport wants it."""
        from deepdraft.transport.tls import TlsOptions

        return TlsOptions(
            ca_file=self.ca_file,
            client_cert_file=self.client_cert,
            client_key_file=self.client_key,
            insecure=self.is_insecure,
        )


def add_connection_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    group = parser.add_argument_group("the server")
    group.add_argument(
        "--engine", choices=ENGINES, metavar="NAME", help=f"the adapter: {', '.join(ENGINES)} (auto: ask the server)"
    )
    group.add_argument("--model", metavar="NAME", help="the model's name in requests (the one the server lists)")
    group.add_argument(
        "--endpoint",
        choices=("auto", "chat", "completions", "native"),
        metavar="ROUTE",
        help="which route generates: chat (with the model's template), completions (raw text or token ids), native "
        "(SGLang's /generate); auto: chat where it works, else completions (auto)",
    )
    group.add_argument("--api-key", metavar="KEY", help="sent as a bearer token (the variable OPENAI_API_KEY)")
    group.add_argument(
        "--admin-key", metavar="KEY", help="for routes that want another key (SGLang's --admin-api-key)"
    )
    group.add_argument(
        "--header", action="append", default=[], metavar="'NAME: VALUE'", help="another header; may be repeated"
    )
    group.add_argument("--ca-file", type=Path, metavar="FILE", help="trust this certificate authority (PEM)")
    group.add_argument("--client-cert", type=Path, metavar="FILE", help="client certificate (PEM)")
    group.add_argument("--client-key", type=Path, metavar="FILE", help="its key (PEM)")
    group.add_argument("--insecure", action="store_true", help="do not check the server's certificate")
    group.add_argument(
        "--server-log",
        type=Path,
        metavar="FILE",
        help="the server's log, read for acceptance where nothing better is",
    )
    group.add_argument("--extra-body", metavar="JSON", help="fields merged into every request body, last")


def access(namespace: argparse.Namespace) -> Access:
    """Read the flags. Raises UsageError for a header that isn't one or a file that isn't there."""
    headers: dict[str, str] = {}
    key = namespace.api_key or os.environ.get("OPENAI_API_KEY")
    if key:
        headers["authorization"] = f"Bearer {key}"
    for text in namespace.header:
        name, separator, value = text.partition(":")
        if not separator or not name.strip():
            raise UsageError("a --header without a colon", hint="write --header 'Name: value'")
        headers[name.strip().lower()] = value.strip()
    admin_headers = {"authorization": f"Bearer {namespace.admin_key}"} if namespace.admin_key else {}
    for path in (namespace.ca_file, namespace.client_cert, namespace.client_key):
        if path is not None and not path.is_file():
            raise UsageError(f"no such file: {path}")
    return Access(
        headers=headers,
        admin_headers=admin_headers,
        ca_file=namespace.ca_file,
        client_cert=namespace.client_cert,
        client_key=namespace.client_key,
        is_insecure=namespace.insecure,
    )


def extra_body(namespace: argparse.Namespace) -> dict[str, Any]:
    """The --extra-body object. Raises UsageError when it isn't a JSON object."""
    if namespace.extra_body is None:
        return {}
    try:
        body = json.loads(namespace.extra_body)
    except json.JSONDecodeError as error:
        raise UsageError(
            f"--extra-body is not JSON: {error}", hint="""for example --extra-body '{"top_k": 1}'"""
        ) from None
    if not isinstance(body, dict):
        raise UsageError("--extra-body must be a JSON object", hint="""for example --extra-body '{"top_k": 1}'""")
    return body


def recorded_command_line(words: Sequence[str]) -> tuple[str, ...]:
    """The command line as results files keep it: without keys, header values, passwords, and whatever in --extra-body
    is named like one."""
    kept: list[str] = []
    for word in words:
        flag, mark, value = word.partition("=")
        if kept and kept[-1] == "--extra-body":
            kept.append(_redacted_json(word))
        elif flag == "--extra-body" and mark:
            kept.append(f"{flag}={_redacted_json(value)}")
        else:
            kept.append(word)
    return redacted_command_line(kept)


def _redacted_json(text: str) -> str:
    try:
        return json.dumps(redacted(json.loads(text)))
    except json.JSONDecodeError:
        return REDACTED
