"""The flags of `deepdraft simulate`: to a spec, and to a server that runs until it is told to stop."""

from __future__ import annotations

import argparse
import dataclasses
import textwrap
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from deepdraft.errors import UsageError
from deepdraft.simulate.spec import (
    DIALECTS,
    Confounds,
    Fault,
    FaultKind,
    Physics,
    SimulateSpec,
    Surface,
    spec_from_json,
)
from deepdraft.units import token_count

DESCRIPTION = """\
A server of known truth: it speaks like a real engine, obeys the times you state, and shows what really happened at
GET /_truth. Nothing else is measured or computed; no model runs."""

_EPILOG = """\
examples:
  deepdraft simulate --dialect sglang --prefill 0.05,2e-4,1e-9 --step 8e-3,1e-7 --committed 0.2,0.3,0.5
  deepdraft simulate --dialect vllm --confound prefix_cache --set physics.page_size=16
  deepdraft simulate --confound first_event_len=16 --committed-pattern 4 --step 0.02
  deepdraft simulate --fault status,every=3,status=429,retry_after_s=1 --fault cut,at=5
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags to the command's parser."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = parser.description or DESCRIPTION
    parser.epilog = _EPILOG + "\n" + _names_text()
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on; 0, the default: any free one")
    parser.add_argument("--dialect", choices=DIALECTS, help="which engine it speaks like (default openai)")
    parser.add_argument("--model", help="name of the model (default sim)")
    parser.add_argument(
        "--prefill", metavar="A[,B[,C]]", help="prefill of n uncached tokens takes A + B n + C n^2 seconds"
    )
    parser.add_argument("--step", metavar="D[,E]", help="a step takes D + E context_len seconds")
    parser.add_argument("--committed", metavar="P1,P2,...", help="chances that a step commits 1, 2, ... tokens")
    parser.add_argument("--committed-pattern", metavar="K1,K2,...", help="committed tokens, in this order for ever")
    parser.add_argument("--kv-pool", metavar="TOKENS", help="size of the KV pool, like 218k")
    parser.add_argument("--max-context-len", metavar="TOKENS", help="context limit, like 200k")
    parser.add_argument(
        "--confound", metavar="NAME[=VALUE]", action="append", default=[], help="switch one on (names below)"
    )
    parser.add_argument(
        "--fault",
        metavar="KIND[,NAME=VALUE...]",
        action="append",
        default=[],
        help="make requests fail; with at=3 or at=3+7 these, with every=4 each fourth, else all",
    )
    parser.add_argument(
        "--set",
        metavar="PART.NAME=VALUE",
        action="append",
        default=[],
        help="any other field of physics, confounds or surface",
    )
    parser.add_argument("--spec", metavar="FILE", type=Path, help="start from this JSON; flags change what they name")


def spec_from_arguments(namespace: argparse.Namespace) -> SimulateSpec:
    """The spec that the flags describe.

    Raises UsageError for a value that can't be used, an unknown name, or a spec file that can't be read.
    """
    spec = SimulateSpec() if namespace.spec is None else _spec_from_file(namespace.spec)
    top = {
        name: getattr(namespace, name) for name in ("host", "port", "dialect") if getattr(namespace, name) is not None
    }
    physics: dict[str, Any] = {}
    if namespace.prefill is not None:
        names = ("prefill_a_s", "prefill_b_s", "prefill_c_s")
        physics |= zip(names, _numbers("--prefill", namespace.prefill, 3), strict=False)
    if namespace.step is not None:
        physics |= zip(("step_d_s", "step_e_s"), _numbers("--step", namespace.step, 2), strict=False)
    if namespace.committed is not None:
        physics["committed_len_probs"] = tuple(_numbers("--committed", namespace.committed, 64))
    if namespace.committed_pattern is not None:
        lens = _numbers("--committed-pattern", namespace.committed_pattern, 1024)
        physics["committed_len_pattern"] = tuple(int(length) for length in lens)
    if namespace.kv_pool is not None:
        physics["kv_pool_tokens"] = token_count(namespace.kv_pool)
    if namespace.max_context_len is not None:
        physics["max_context_len"] = token_count(namespace.max_context_len)
    changes: dict[str, dict[str, Any]] = {"physics": physics, "confounds": {}, "surface": {}}
    if namespace.model is not None:
        changes["surface"]["model"] = namespace.model
    for text in namespace.confound:
        name, _, value = text.partition("=")
        changes["confounds"][name] = _value("--confound", Confounds, name, value if "=" in text else None)
    for text in namespace.set:
        path, mark, value = text.partition("=")
        part, _, name = path.partition(".")
        if part not in changes or not mark:
            raise UsageError(f"--set {text!r} is not PART.NAME=VALUE", hint="PART: physics, confounds or surface")
        kind: type = {"physics": Physics, "confounds": Confounds, "surface": Surface}[part]
        changes[part][name] = _value("--set", kind, name, value)
    faults = (*spec.faults, *(_fault(text) for text in namespace.fault))
    return dataclasses.replace(
        spec,
        **top,
        physics=dataclasses.replace(spec.physics, **changes["physics"]),
        confounds=dataclasses.replace(spec.confounds, **changes["confounds"]),
        surface=dataclasses.replace(spec.surface, **changes["surface"]),
        faults=faults,
    )


def run(namespace: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM; the URL goes to stdout, talk to stderr. Returns the exit code.

    Raises UsageError as `spec_from_arguments` and `Server.start` do.
    """
    spec = spec_from_arguments(namespace)
    # Imported here: the command's --help must stay quick.
    from deepdraft.simulate.process import serve_until_signal

    return serve_until_signal(spec)


def _spec_from_file(path: Path) -> SimulateSpec:
    try:
        return spec_from_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"can't read the spec {path}: {error.strerror}") from error


def _numbers(flag: str, text: str, max_count: int) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"{flag}: not a list of numbers: {text!r}") from error
    if len(numbers) > max_count:
        raise UsageError(f"{flag}: at most {max_count} numbers, not {len(numbers)}")
    return numbers


def _fault(text: str) -> Fault:
    kind, *settings = text.split(",")
    if kind not in get_args(FaultKind):
        raise UsageError(f"--fault: no such kind: {kind!r}", hint=f"kinds: {', '.join(get_args(FaultKind))}")
    values: dict[str, Any] = {}
    for setting in settings:
        name, mark, value = setting.partition("=")
        if not mark:
            raise UsageError(f"--fault {text!r}: {setting!r} is not NAME=VALUE")
        values[name] = _value("--fault", Fault, name, value)
    return Fault(kind=kind, **values)  # type: ignore[arg-type]  # checked above


def _value(flag: str, kind: type, name: str, text: str | None) -> Any:
    """One field's value from its text; a switch named without a value is on."""
    hints = get_type_hints(kind)
    if name not in hints or name not in {field.name for field in dataclasses.fields(kind)}:
        raise UsageError(f"{flag}: no such name: {name!r}", hint=f"names: {', '.join(_field_names(kind))}")
    hint = hints[name]
    if text is None:
        if hint is not bool:
            raise UsageError(f"{flag} {name} needs a value: {name}=...")
        return True
    raw: Any = text
    if get_origin(hint) is tuple:
        raw = text.split("+")
    elif text.lower() in ("none", "null") and _is_optional(hint):
        return None
    try:
        return msgspec.convert(raw, hint, strict=False)
    except msgspec.ValidationError as error:
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        hint_text = f"one of {', '.join(map(str, choices))}" if choices else None
        raise UsageError(f"{flag} {name}={text}: {error}", hint=hint_text) from error


def _is_optional(hint: Any) -> bool:
    return get_origin(hint) in (types.UnionType, Union) and type(None) in get_args(hint)


def _field_names(kind: type) -> Sequence[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _names_text() -> str:
    """The names that --confound, --fault and --set know, with their defaults."""
    kinds: dict[str, type] = {"confounds": Confounds, "physics": Physics, "surface": Surface, "fault settings": Fault}
    paragraphs = [f"fault kinds: {', '.join(get_args(FaultKind))}"]
    for title, kind in kinds.items():
        known = ", ".join(
            f"{field.name} ({_default_text(field.default)})"
            for field in dataclasses.fields(kind)
            if field.default is not dataclasses.MISSING
        )
        paragraphs.append(f"{title}, with their defaults: {known}")
    wrapped = (textwrap.wrap(text, 100, subsequent_indent="  ", break_on_hyphens=False) for text in paragraphs)
    return "\n\n".join("\n".join(lines) for lines in wrapped) + "\n"


def _default_text(value: object) -> str:
    if value is None or value in ("", ()):
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)
