"""A table typed in by hand, as TOML: figures of a report, an issue or a paper, with what it says of them.

Figures are written as they were printed ("118.6", "3.1 min"), so that their rounding is known. Keys are our names
(`docs/reference/imports.md` lists them); an unknown key is refused by name, since a typing error must not lose a
figure. Figures that the catalogue does not have (`accepted_len`, `verify_s` ...) are kept in the file for `explain`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from deepdraft.errors import ResultsError
from deepdraft.importers.document import Document
from deepdraft.importers.imported import Imported
from deepdraft.importers.printed import printed, printed_len
from deepdraft.metrics import FIGURE_NAMES
from deepdraft.records import Acceptance, Reported, ReportedFigure, Ternary

FURTHER_FIGURES = ("accepted_len", "draft_s", "verify_s", "rebuild_s", "draft_len", "acceptance_rate", "num_steps")
"""Names a table may use besides the catalogue's."""

_SOURCE_KEYS = {"tool", "version", "measured_at", "unknowns", "traps", "note"}
_SERVER_KEYS = {
    "engine", "version", "model", "tokenizer", "device", "speculation", "speculation_method", "max_context_len",
    "kv_pool_tokens", "page_size", "num_slots", "settings", "doubts", "text",
}  # fmt: skip
_POINT_KEYS = {
    "asked_context_len", "context_len", "concurrency", "decode_len", "is_cold", "workload", "remarks", "acceptance",
}  # fmt: skip
_FIGURE_KEYS = {"said", "statistic", "num_samples", "definition", "doubt"}
_ACCEPTANCE_KEYS = {
    "source", "num_steps", "num_draft_tokens", "num_accepted_tokens", "accepted_at_depth", "accepted_len_histogram",
    "accepted_len_by_step", "stated_acceptance_len", "is_lifetime_average", "doubt",
}  # fmt: skip


def recognises(document: Document) -> bool:
    """Whether the text is TOML with a [[point]] list."""
    return "[[point]]" in document.text and not document.text.lstrip().startswith("{")


def read(document: Document) -> Imported:
    """The table. Raises ResultsError, with the place in it, for what can't be read."""
    try:
        page = tomllib.loads(document.text)
    except tomllib.TOMLDecodeError as error:
        raise ResultsError(f"{document.name} is not TOML: {error}") from None
    _only(page, {"source", "server", "point"}, "the table")
    source, server = _part(page, "source", _SOURCE_KEYS), _part(page, "server", _SERVER_KEYS)
    points = page.get("point")
    if not isinstance(points, list) or not points or not all(isinstance(point, dict) for point in points):
        raise ResultsError(f"{document.name} has no [[point]]")
    speculation = server.get("speculation", "unknown")
    if speculation not in get_args(Ternary):
        raise ResultsError(f"server.speculation is {speculation!r}", hint="yes, no or unknown")
    return Imported(
        tool=source.get("tool", "a published table"),
        version=source.get("version"),
        measured_at=source.get("measured_at"),
        unknowns=_sentences(source, "unknowns", "[source]"),
        traps=_sentences(source, "traps", "[source]"),
        notes=_notes(source.get("note", [])),
        engine=server.get("engine", "unknown"),
        engine_version=server.get("version"),
        model=server.get("model"),
        tokenizer=server.get("tokenizer"),
        device=server.get("device"),
        speculation=speculation,
        speculation_method=server.get("speculation_method"),
        max_context_len=_optional_len(server, "max_context_len"),
        kv_pool_tokens=_optional_len(server, "kv_pool_tokens"),
        page_size=server.get("page_size"),
        num_slots=server.get("num_slots"),
        settings=server.get("settings", {}),
        doubts=_sentences(server, "doubts", "[server]"),
        text=server.get("text", "unknown"),
        lines=tuple(_line(point, f"point {number}") for number, point in enumerate(points, start=1)),
    )


def _line(point: Mapping[str, Any], where: str) -> Reported:
    names = [*FIGURE_NAMES, *FURTHER_FIGURES]
    _only(point, {*_POINT_KEYS, *names}, where)
    if "context_len" not in point and "asked_context_len" not in point:
        raise ResultsError(f"{where} has neither context_len nor asked_context_len")
    line = Reported(
        asked_context_len=_optional_len(point, "asked_context_len"),
        context_len=_optional_len(point, "context_len"),
        concurrency=point.get("concurrency", 1),
        decode_len=_optional_len(point, "decode_len"),
        figures={name: _figure(point[name], name, where) for name in names if name in point},
        acceptance=_acceptance(point["acceptance"], where) if "acceptance" in point else None,
        is_cold=point.get("is_cold"),
        workload=point.get("workload"),
        remarks=_sentences(point, "remarks", where),
    )
    try:
        return msgspec.convert(msgspec.to_builtins(line), Reported)  # a truth value in quotes, a length as text ...
    except msgspec.ValidationError as error:
        raise ResultsError(f"{where}: {error}") from None


def _figure(said: Any, name: str, where: str) -> ReportedFigure:
    words: Mapping[str, Any] = {}
    if isinstance(said, dict):
        _only(said, _FIGURE_KEYS, f"{where}, {name}")
        words, said = said, said.get("said")
    texts = said if isinstance(said, list) else [said]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ResultsError(f"{where}, {name}: write it as printed, in quotes", hint=f'{name} = "118.6"')
    read_texts = [printed(text, name) for text in texts]
    half_widths = [one.half_width for one in read_texts]
    return ReportedFigure(
        values=tuple(one.value for one in read_texts),
        half_width=None if None in half_widths else max(width for width in half_widths if width is not None),
        statistic=words.get("statistic"),
        num_samples=words.get("num_samples"),
        definition=words.get("definition"),
        doubt=words.get("doubt"),
    )


def _acceptance(said: Mapping[str, Any], where: str) -> Acceptance:
    _only(said, _ACCEPTANCE_KEYS, f"{where}, acceptance")
    if "source" not in said:
        raise ResultsError(f"{where}, acceptance: say its source")
    try:
        return msgspec.convert(dict(said), Acceptance)
    except msgspec.ValidationError as error:
        raise ResultsError(f"{where}, acceptance: {error}") from None


def _sentences(part: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    sentences = part.get(key, [])
    if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
        raise ResultsError(f"{where}: {key} is not a list of sentences", hint=f'{key} = ["..."]')
    return tuple(sentences)


def _notes(entries: Any) -> tuple[tuple[str, str], ...]:
    is_list = isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)
    if not is_list or any(set(entry) != {"topic", "message"} for entry in entries):
        raise ResultsError("[[source.note]] needs a topic and a message, and nothing else")
    return tuple((entry["topic"], entry["message"]) for entry in entries)


def _part(page: Mapping[str, Any], name: str, keys: set[str]) -> Mapping[str, Any]:
    part = page.get(name, {})
    if not isinstance(part, dict):
        raise ResultsError(f"[{name}] is not a table")
    _only(part, keys, f"[{name}]")
    return part


def _only(part: Mapping[str, Any], keys: set[str], where: str) -> None:
    unknown = [key for key in part if key not in keys]
    if unknown:
        raise ResultsError(f"{where}: unknown key {unknown[0]!r}", hint=f"known: {', '.join(sorted(keys))}")


def _optional_len(part: Mapping[str, Any], key: str) -> int | None:
    return printed_len(part[key], key) if key in part else None
