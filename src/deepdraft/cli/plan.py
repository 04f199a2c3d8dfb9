"""`deepdraft plan MODEL`: from a model, a device and an engine's flags to a KV pool that holds, and back."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepdraft.cli.output import write_out
from deepdraft.errors import ResultsError, UsageError

if TYPE_CHECKING:
    from deepdraft.cli.plan_asked import Asked
    from deepdraft.planner.plan import Plan

EXIT_DIFFERS = 1
_DEFAULT_MARGIN_FRAC = 0.02


def add_command(commands: Any) -> None:
    """Add `plan` to the command line."""
    parser = commands.add_parser(
        "plan",
        help="say what a model, a device and flags make of memory, and which flags hold a context",
        description="From a model, a device and an engine's flags to the KV pool, the longest request, what stays "
        "free and whether a long prefill fits into it; and back, from a context to flags that hold it. Flags are "
        "written as the engine has them. A start that was measured (--server-log, --server, --pool) makes it exact.",
    )
    parser.fill = lambda: _add_arguments(parser)
    parser.set_defaults(run=run, client_cert=None, client_key=None, admin_key=None)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    from deepdraft.cli.plan_flags import add_engine_flags
    from deepdraft.cli.plan_values import add_plan_arguments

    add_plan_arguments(parser)
    add_engine_flags(parser)


def run(namespace: argparse.Namespace) -> int:
    """Print the plan, or the flags, or the launch command. Raises UsageError for what can't be planned, ServerError
    where the server that was named does not answer."""
    from deepdraft.cli.plan_asked import asked_of, measured_start

    _refuse_idle_flags(namespace)
    start = measured_start(namespace)
    if namespace.model is None:
        return _pools_alone(namespace)
    asked = asked_of(namespace, start)
    plan = asked.plan(asked.settings)
    if namespace.target_context is not None:
        return _back(namespace, asked, plan)
    _write_html(namespace, asked, plan)
    if namespace.check is not None:
        return _checked(namespace, plan)
    if namespace.emit is not None:
        return _emitted(namespace, asked, plan)
    if namespace.json:
        from deepdraft.planner.json_object import plan_object

        return _printed(json.dumps({**plan_object(plan), **_died(namespace, plan)}, indent=2) + "\n")
    return _printed(_died_text(namespace, plan) + _plan_text(namespace, asked, plan))


def _refuse_idle_flags(namespace: argparse.Namespace) -> None:
    """A flag that nothing would come of is a mistake. Raises UsageError."""
    is_started = namespace.server_log is not None or namespace.server is not None
    for word, has_use in (
        ("--requests", namespace.requests is None or namespace.target_context is not None),
        ("--margin", namespace.margin is None or namespace.target_context is not None),
        ("--started-with", not namespace.started_with or is_started),
        ("--target-context", namespace.target_context is None or namespace.check is None),
        ("--emit", namespace.emit is None or not (namespace.json or namespace.check)),
    ):
        if not has_use:
            raise UsageError(f"{word} has no use here", hint=_USES[word])


_USES = {
    "--requests": "with --target-context: so many requests of that length at once",
    "--margin": "with --target-context: what the pool shall have to spare",
    "--started-with": "with --server-log or --server: a flag of that start",
    "--target-context": "find the flags first, start the server with them, then --check it",
    "--emit": "alone: it prints nothing but the command or the unit",
}


def _pools_alone(namespace: argparse.Namespace) -> int:
    """Two pools and no model."""
    from deepdraft.cli.plan_flags import given_fields, settings_with
    from deepdraft.planner.calibrate import calibration_of_pools
    from deepdraft.planner.flag import FRACTION
    from deepdraft.planner.text_pool import pools_object, pools_text

    if len(namespace.pool) != 2:
        raise UsageError(
            "which model?",
            hint="a config.json, a checkpoint's folder or a bundled name; without one give two pools: "
            "--pool 0.85=101134 --pool 0.94=218484",
        )
    engine = namespace.engine or "sglang"
    given = given_fields(namespace, engine)
    settings = settings_with(engine, given)
    calibration = calibration_of_pools(namespace.pool, settings)
    own = getattr(settings, FRACTION[engine])
    fractions = [own] if own is not None else []
    low, high = sorted(fraction for fraction, _ in namespace.pool)
    fractions += namespace.fractions or [round(low + (high - low) * part / 4, 4) for part in range(5)]
    target = namespace.target_context
    target_tokens = None if target is None else target * (namespace.requests or 1)
    wish = (target_tokens, _margin(namespace))
    fractions = list(dict.fromkeys(fractions))
    if namespace.json:
        return _printed(json.dumps(pools_object(calibration, fractions, *wish), indent=2) + "\n")
    return _printed(pools_text(calibration, fractions, *wish))


def _checked(namespace: argparse.Namespace, plan: Plan) -> int:
    from deepdraft.cli.plan_start import start_of_server
    from deepdraft.planner.check import checks
    from deepdraft.planner.json_object import checks_object
    from deepdraft.planner.text_option import checks_text

    server = start_of_server(namespace.check, namespace)
    if server.engine != plan.engine:
        raise UsageError(f"{namespace.check} is {server.engine}, the plan is for {plan.engine}")
    found = checks(plan, server.figures, server.stated)
    if server.kv_pool_tokens is None:
        print(f"deepdraft: {namespace.check} does not tell its KV pool", file=sys.stderr)
    if namespace.json:
        _printed(json.dumps({"checks": checks_object(found)}, indent=2) + "\n")
    else:
        _printed(checks_text(found))
    return 0 if found and all(check.agrees for check in found) else EXIT_DIFFERS


def _back(namespace: argparse.Namespace, asked: Asked, given: Plan) -> int:
    from deepdraft.planner.back import settings_for
    from deepdraft.planner.lever import freed_by_flag

    wish: dict[str, Any] = {"target_context_len": namespace.target_context, "num_requests": namespace.requests or 1}
    margin_frac = _margin(namespace)
    options = settings_for(asked.plan, asked.settings, margin_frac=margin_frac, **wish)
    best = options[0].plan
    _write_html(namespace, asked, best)
    if namespace.emit is not None:
        return _emitted(namespace, asked, best)
    levers = freed_by_flag(asked.plan, asked.settings, **wish)
    if namespace.json:
        from deepdraft.planner.json_object import lever_object, option_object, plan_object

        answer = {
            **plan_object(best),
            **_died(namespace, given),
            "wish": {**wish, "margin_frac": margin_frac},
            "given": plan_object(given),
            "options": [option_object(option) for option in options],
            "levers": [lever_object(lever) for lever in levers],
        }
        return _printed(json.dumps(answer, indent=2) + "\n")
    from deepdraft.planner.text_option import options_text

    text = options_text(options, levers, start=given, margin_frac=margin_frac, **wish)
    title = "The first of them" if len(options) > 1 else "In full"
    whole = _plan_text(namespace, asked, best)
    return _printed(f"{_died_text(namespace, given)}{text}\n{title}\n{'=' * len(title)}\n\n{whole}")


def _margin(namespace: argparse.Namespace) -> float:
    return _DEFAULT_MARGIN_FRAC if namespace.margin is None else float(namespace.margin)


def _emitted(namespace: argparse.Namespace, asked: Asked, plan: Plan) -> int:
    """The command or unit alone on standard output; what is wrong with it is said beside."""
    from deepdraft.planner.launch import command_text, launch
    from deepdraft.planner.systemd import unit_text

    if plan.verdict.outcome != "safe":
        print(f"deepdraft: {plan.verdict.summary}", file=sys.stderr)
    drafter = asked.model.drafter
    command = launch(
        plan.settings,
        _served(namespace.model),
        drafter=None if namespace.drafter in (None, "mtp") else _served(namespace.drafter),
        drafter_kind=None if drafter is None else drafter.kind,
    )
    if namespace.emit == "command":
        return _printed(command_text(command))
    return _printed(unit_text(command, f"{plan.model} on {plan.engine}, planned for {plan.kv_pool_tokens:,} tokens"))


def _served(text: str) -> str:
    """As the engine is told of it: the folder of a config.json, by its whole path; a name as it is."""
    path = Path(text)
    if not path.exists():
        return text
    return str((path.parent if path.name == "config.json" else path).resolve())


def _plan_text(namespace: argparse.Namespace, asked: Asked, plan: Plan) -> str:
    from deepdraft.planner.fractions import plans_by_fraction
    from deepdraft.planner.text import plan_text

    drafter = asked.model.drafter
    return plan_text(
        plan,
        drafter=None if drafter is None else drafter.shape.name,
        others=plans_by_fraction(asked.plan, plan, tuple(namespace.fractions)),
        has_sources=namespace.sources,
    )


def _died(namespace: argparse.Namespace, plan: Plan) -> dict[str, Any]:
    from deepdraft.planner.died import died_advice

    return {} if namespace.died is None else {"died": list(died_advice(namespace.died, plan))}


def _died_text(namespace: argparse.Namespace, plan: Plan) -> str:
    from deepdraft.planner.died import died_advice
    from deepdraft.planner.text_option import died_text

    return "" if namespace.died is None else died_text(namespace.died, died_advice(namespace.died, plan)) + "\n"


def _write_html(namespace: argparse.Namespace, asked: Asked, plan: Plan) -> None:
    if namespace.html is None:
        return
    from deepdraft.cli.plan_view import memory_view
    from deepdraft.report.html_memory import memory_page

    drafter = asked.model.drafter
    page = memory_page(memory_view(plan, None if drafter is None else drafter.shape.name))
    try:
        namespace.html.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"can't write {namespace.html}: {error.strerror}") from None


def _printed(text: str) -> int:
    write_out(text)
    return 0
