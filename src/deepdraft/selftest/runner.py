"""Runs the checks and prints our errors beside the targets."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable

from deepdraft.errors import DeepdraftError, UsageError
from deepdraft.selftest import cache, cost, fault, timing
from deepdraft.selftest.check import Check, Error
from deepdraft.version import VERSION


def all_checks() -> tuple[Check, ...]:
    """Every check, in the order they run."""
    return (*timing.checks(), *fault.checks(), *cache.checks(), *cost.checks())


def run_selftest(*, only: tuple[str, ...], is_list: bool, is_json: bool, num_repeats: int) -> bool:
    """Run the checks (or name them); whether every target was met. Raises UsageError for an unknown name."""
    checks = _chosen(only)
    if is_list:
        for check in checks:
            print(f"{check.name:<24} {check.about}")
        return True
    results: dict[str, tuple[Error, ...]] = {}
    if not is_json:
        print(_heading())
    for index, check in enumerate(checks, start=1):
        if sys.stderr.isatty():
            print(f"\r[{index}/{len(checks)}] {check.name:<30}", end="", file=sys.stderr, flush=True)
        results[check.name] = _errors(check, num_repeats)
        if sys.stderr.isatty():
            print("\r" + " " * 44 + "\r", end="", file=sys.stderr, flush=True)
        if not is_json:
            for line in _lines(check, results[check.name]):
                print(line, flush=True)
    missed = [f"{name}: {error.name}" for name, errors in results.items() for error in errors if not error.is_met]
    if is_json:
        print(json.dumps(_object(results), indent=2))
    else:
        num_errors = sum(len(errors) for errors in results.values())
        print(f"\n{num_errors - len(missed)} of {num_errors} targets met")
        for name in missed:
            print(f"missed: {name}")
        if any(not name.startswith("cost:") for name in missed):
            print("figures of that size can't be trusted on this machine, now: is something else running?")
    return not missed


def _chosen(only: tuple[str, ...]) -> tuple[Check, ...]:
    checks = all_checks()
    unknown = set(only) - {check.name for check in checks}
    if unknown:
        raise UsageError(f"no such check: {', '.join(sorted(unknown))}", hint="deepdraft selftest --list names them")
    return tuple(check for check in checks if not only or check.name in only)


def _errors(check: Check, num_repeats: int) -> tuple[Error, ...]:
    try:
        return check.run(num_repeats)
    except DeepdraftError as error:
        return (Error(name="ran", value=None, target=0, unit="", note=error.message),)


def _heading() -> str:
    load = f"{os.getloadavg()[0]:.1f}"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"deepdraft {VERSION} selftest: {cores} cores, load {load}, Python {platform.python_version()}\n"
        "TTFT and token time: median error against the server's own stamps; tokens: largest difference\n\n"
        f"{'check':<24} {'error of':<22} {'ours':>10} {'target':>10}"
    )


def _lines(check: Check, errors: Iterable[Error]) -> list[str]:
    lines = []
    for index, error in enumerate(errors):
        name = check.name if index == 0 else ""
        ours = "-" if error.value is None else f"{_number(error.value)} {error.unit}".strip()
        bound = (">= " if error.is_floor else "<= ") + f"{_number(error.target)} {error.unit}".strip()
        mark = "" if error.is_met else "  MISSED"
        lines.append(f"{name:<24} {error.name:<26} {ours:>9} {bound:>10}{mark}")
        if not error.is_met and error.note:
            lines.append(f"{'':<24}   {error.note}")
    return lines


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}"


def _object(results: dict[str, tuple[Error, ...]]) -> dict[str, object]:
    return {
        "deepdraft_version": VERSION,
        "is_met": all(error.is_met for errors in results.values() for error in errors),
        "checks": [
            {
                "name": name,
                "errors": [
                    {
                        "name": error.name,
                        "value": error.value,
                        "target": error.target,
                        "unit": error.unit,
                        "is_met": error.is_met,
                        "note": error.note,
                    }
                    for error in errors
                ],
            }
            for name, errors in results.items()
        ],
    }
