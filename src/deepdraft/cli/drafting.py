"""The flags that say how our stack drafts: of `serve`, and of the commands that start an embedded server.

What they mean is `infer`'s; here they are read, what can't be obeyed together is refused, and they are written as
words again for the child's command line. All default to None: not said.
"""

from __future__ import annotations

import argparse
import math
import shlex
from typing import Any

from deepdraft.cli.value import count, tokens
from deepdraft.errors import UsageError

NONE, NGRAM = "none", "ngram"
SPECULATION_MODES = ("auto", "always", "never")
"""As `infer.control.decision` has them, which is not imported for --help."""
_WORDS = {
    "drafter": "--drafter",
    "speculation": "--speculation",
    "tree_budget": "--tree-budget",
    "tree_top_k": "--tree-top-k",
    "is_spine_first": "--spine-first",
    "draft_window": "--draft-window",
    "draft_sink": "--draft-sink",
    "simulate_acceptance_len": "--simulate-acceptance-len",
}
"""The namespace's name of each flag, in the order in which they are written."""


def add_drafting_flags(group: Any) -> None:
    """Add them to an argument group."""
    group.add_argument(
        "--drafter",
        metavar="NAME",
        help="none, ngram (prompt lookup), embedded (that of the embedded model) or the folder of a DFlash drafter "
        "(none). Output is the same with each",
    )
    group.add_argument(
        "--speculation",
        choices=SPECULATION_MODES,
        help="auto: draft where a round is faster than plain decoding, by context length and request, and try again "
        "now and then where it isn't; always; never: the drafter only looks on (auto)",
    )
    group.add_argument("--tree-budget", type=count, metavar="N", help="draft nodes verified a step, root apart (16)")
    group.add_argument(
        "--tree-top-k",
        type=count,
        metavar="K",
        help="candidates of each depth; 1 drafts a chain instead of a tree (8)",
    )
    group.add_argument(
        "--spine-first",
        dest="is_spine_first",
        action="store_true",
        default=None,
        help="the likeliest chain goes into the tree before anything else",
    )
    group.add_argument(
        "--draft-window",
        type=tokens,
        metavar="TOKENS",
        help="the drafter sees this much of the context's end, in whole pages (the drafter's own, else all)",
    )
    group.add_argument(
        "--draft-sink", type=tokens, metavar="TOKENS", help="and this much of its beginning, beside a window"
    )
    group.add_argument(
        "--simulate-acceptance-len",
        type=_acceptance_len,
        metavar="X",
        help="FOR BENCHMARKS: commit X tokens a step on average whatever the target says. Output has no meaning",
    )


def check_drafting(namespace: argparse.Namespace) -> None:
    """Raises UsageError for a flag that the drafter, or the lack of one, leaves without effect."""
    said = {name: value for name in _WORDS if (value := getattr(namespace, name, None)) is not None}
    drafter = said.pop("drafter", NONE)
    if drafter == NONE and said:
        raise UsageError(
            f"{_WORDS[next(iter(said))]} is for drafting, and there is no drafter",
            hint="add --drafter embedded, --drafter ngram, or the folder of a drafter",
        )
    if drafter == NGRAM:
        for name in ("draft_window", "draft_sink", "is_spine_first"):
            if name in said:
                raise UsageError(
                    f"{_WORDS[name]} has no effect on prompt lookup, which drafts chains by reading text"
                )
        if said.get("tree_top_k", 1) > 1:
            raise UsageError("--tree-top-k: prompt lookup drafts one token a depth", hint="leave it out")


def drafting_words(namespace: argparse.Namespace) -> tuple[str, ...]:
    """What was said, as words of a command line in a fixed order; empty where nothing was. Raises UsageError."""
    check_drafting(namespace)
    words: list[str] = []
    for name, flag in _WORDS.items():
        value = getattr(namespace, name, None)
        if value is True:
            words.append(flag)
        elif value is not None:
            words += [flag, f"{value:g}" if isinstance(value, float) else str(value)]
    return tuple(words)


def is_embedded(text: str) -> bool:
    """Whether a name given in place of a URL stands for an embedded server."""
    return text.partition(" ")[0] == "embedded"


def embedded_server(text: str) -> tuple[str, tuple[str, ...]]:
    """`embedded --drafter ngram` or `embedded llamacpp`: what a spec holds in place of a URL, and the server's
    further words. Raises UsageError for what can't be read."""
    from deepdraft.cli.main import Parser
    from deepdraft.embedded import DEFAULT_ENGINE, embedded_url

    parser = Parser(prog='"embedded ..."', add_help=False)
    parser.add_argument("embedded")
    parser.add_argument("engine", nargs="?", default=DEFAULT_ENGINE)
    add_drafting_flags(parser)
    try:
        namespace = parser.parse_args(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"{text!r}: {error}", hint="for example 'embedded --drafter ngram'") from None
    except UsageError as error:
        raise UsageError(f"{text!r}: {error.message}", hint="for example 'embedded --drafter ngram'") from None
    words = drafting_words(namespace)
    check_embedded_words(words, namespace.engine)
    return embedded_url(namespace.engine), words


def check_embedded_words(words: tuple[str, ...], engine: str | None) -> None:
    """Raises UsageError where drafting flags are given for anything but our own embedded server. engine: of the
    embedded server; None: a URL."""
    from deepdraft.embedded import DEFAULT_ENGINE

    if not words or engine == DEFAULT_ENGINE:
        return
    if engine is None:
        raise UsageError(
            f"{words[0]} is for the embedded server", hint="add --embedded, or start your server with its drafter"
        )
    raise UsageError(f"{words[0]} is for the embedded {DEFAULT_ENGINE}, not {engine}", hint="leave it out")


def _acceptance_len(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a number: {text!r}") from None
    if not 1 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"each step commits a token, so it is 1 or more: {text}")
    return value
