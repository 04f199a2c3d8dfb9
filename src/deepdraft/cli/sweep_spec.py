"""What the flags of `sweep` ask for: a new spec, or the recorded one of a file that is resumed.

A flag that was not given is None, so that a resumed file decides whatever was not said again.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from deepdraft.cli.connection import extra_body
from deepdraft.cli.drafting import check_embedded_words, drafting_words
from deepdraft.errors import UsageError
from deepdraft.records import Header, Limits, SweepSpec
from deepdraft.records.redact import REDACTED, redacted
from deepdraft.units import token_counts

_FLAGS = {
    "context_lens": "--context-len",
    "num_repeats": "--repeats",
    "concurrencies": "--concurrency",
    "num_requests": "--requests",
    "needle_depth": "--needle",
    "num_warmups": "--warmups",
    "embedded_flags": "how the embedded server drafts",
}
"""Names of flags that are not the spec's own."""
_LISTS = ("embedded_flags", "context_lens", "concurrencies", "extra_body", "limits", "url", "server_log")
_PATIENCE = ("server_log",)
"""What a resumed sweep may change besides its limits: nothing of it decides what is measured."""


def asked_spec(namespace: argparse.Namespace) -> SweepSpec:
    """The spec of a new sweep. Raises UsageError for what can't be used or contradicts itself."""
    from deepdraft.embedded import embedded_engine, engine_name

    url = _url(namespace)
    if url is None:
        raise UsageError(
            "give the server's URL, or --embedded",
            hint="for example: deepdraft sweep http://localhost:8000 --context-len 1k,16k",
        )
    given = _given(namespace)
    if "context_lens" not in given:
        engine = embedded_engine(url)
        if engine is None:
            raise UsageError("nothing to measure", hint="give --context-len, for example --context-len 1k,16k,128k")
        given["context_lens"] = token_counts(engine.default_context_lens)
    check_embedded_words(given.get("embedded_flags", ()), engine_name(url))
    spec = SweepSpec(url=url, limits=Limits(**_given_limits(namespace)), **given)
    _refuse_contradictions(spec)
    return spec


def resumed_spec(
    namespace: argparse.Namespace, header: Header, *, embedded_flags: tuple[str, ...] | None = None
) -> SweepSpec:
    """The file's own spec, at the URL that was given, if one was.

    embedded_flags: how the embedded server drafts, where something else than the namespace says it.
    Raises UsageError when a flag asks for something else than what is recorded: the two halves would not be one
    sweep.
    """
    recorded, given = header.spec, _given(namespace)
    if embedded_flags is not None:
        given["embedded_flags"] = embedded_flags
    body = given.get("extra_body")
    if body is None and _has_redacted(recorded.extra_body):
        raise UsageError("the results file does not hold the secrets of --extra-body", hint="give --extra-body again")
    differences = [
        f"{_flag(name)} is {_shown(value)}, there {_shown(_recorded(header, name))}"
        for name, value in given.items()
        if name not in _PATIENCE and (redacted(value) if name == "extra_body" else value) != _recorded(header, name)
    ]
    if differences:
        raise UsageError(
            f"the results file was made with other settings: {'; '.join(differences)}",
            hint="--resume FILE alone goes on with the settings of the file",
        )
    limits = replace(recorded.limits, **_given_limits(namespace))
    again = {name: given[name] for name in ("extra_body", *_PATIENCE) if name in given}
    return replace(recorded, url=_url(namespace) or recorded.url, limits=limits, **again)


def _url(namespace: argparse.Namespace) -> str | None:
    """The server's URL, or the name that stands for an embedded one; None when neither is given."""
    from deepdraft.embedded import embedded_url

    name: str | None = namespace.embedded
    url: str | None = namespace.url
    if name is None:
        return url
    if url is not None or "://" in name:
        raise UsageError("give a URL or --embedded, not both")
    return embedded_url(name)


def _given(namespace: argparse.Namespace) -> dict[str, Any]:
    """The fields of the spec that flags say something about."""
    from deepdraft.bench import arrival
    from deepdraft.bench.text import text_source

    given = {
        field.name: value
        for field in fields(SweepSpec)
        if field.name not in _LISTS and (value := getattr(namespace, field.name)) is not None
    }
    words = drafting_words(namespace)
    if words:
        given["embedded_flags"] = words
    if namespace.context_len is not None:
        given["context_lens"] = token_counts(namespace.context_len)
    if namespace.concurrency is not None:
        given["concurrencies"] = _concurrencies(namespace.concurrency)
    if namespace.extra_body is not None:
        given["extra_body"] = extra_body(namespace)
    if namespace.server_log is not None:
        given["server_log"] = str(namespace.server_log)
    if "arrival" in given:
        arrival.rate(given["arrival"])
    if "text" in given:
        text_source(given["text"])
    return given


def _given_limits(namespace: argparse.Namespace) -> dict[str, Any]:
    limits = {
        "first_token_s": namespace.first_token_limit,
        "stall_s": namespace.stall_limit,
        "request_s": namespace.request_limit,
        "server_wait_s": namespace.wait_server,
        "start_wait_s": namespace.wait_server,
        "num_retries": namespace.retries,
    }
    return {name: value for name, value in limits.items() if value is not None}


def _concurrencies(text: str) -> tuple[int, ...]:
    counts = []
    for part in (piece.strip() for piece in text.split(",")):
        if not part.isdecimal() or int(part) < 1:
            raise UsageError(f"--concurrency: not a number of requests: {part!r}", hint="write --concurrency 1,2,4")
        counts.append(int(part))
    return tuple(dict.fromkeys(counts))


def _refuse_contradictions(spec: SweepSpec) -> None:
    """Flags that can't be obeyed together: none of them is dropped in silence."""
    from deepdraft.bench import arrival

    most = max(spec.concurrencies)
    if spec.num_requests is not None and spec.num_requests < most:
        raise UsageError(
            f"--requests {spec.num_requests} are fewer than --concurrency {most} keeps in flight",
            hint="give as many --requests as the largest concurrency, or more",
        )
    if arrival.rate(spec.arrival) is not None:
        if spec.method == "two-point":
            raise UsageError(
                "--arrival is for the streaming method: two-point pairs run one after the other",
                hint="leave out --arrival, or --method two-point",
            )
        if (spec.num_requests or most) == 1:
            raise UsageError(
                f"--arrival {spec.arrival} needs more than one request", hint="give --requests, for example 50"
            )
    if spec.prompt_form == "ids" and spec.endpoint == "chat":
        raise UsageError("the chat endpoint takes no token ids", hint="give --endpoint completions")


def _recorded(header: Header, name: str) -> Any:
    value = getattr(header.spec, name)
    # A model that was found is the same as one that is named.
    return header.capabilities.model if name == "model" and value is None else value


def _flag(name: str) -> str:
    return _FLAGS.get(name, f"--{name.replace('_', '-')}")


def _shown(value: Any) -> str:
    if value is None:
        return "not given"
    if not value and isinstance(value, tuple):
        return "not said"
    if isinstance(value, tuple) and isinstance(value[0], str):
        return " ".join(value)
    if isinstance(value, tuple):
        return ",".join(str(each) for each in value)
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    return json.dumps(redacted(value)) if isinstance(value, Mapping) else str(value)


def _has_redacted(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_redacted, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_redacted, value))
    return isinstance(value, str) and REDACTED in value
