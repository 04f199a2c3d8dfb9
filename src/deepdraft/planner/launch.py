"""The command that starts a server with planned settings: words and environment. Nothing is run.

What decides no memory (host, port, paths of caches) is left to the reader.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from deepdraft.planner.flag import VARIABLES, engine_of, flag_name, stated_fields
from deepdraft.planner.settings import EngineSettings

_SWITCHES = {"enable_dp_attention", "disable_cuda_graph", "enforce_eager", "swa_full"}
_BEGINNINGS: Mapping[str, tuple[str, ...]] = {
    "sglang": ("python", "-m", "sglang.launch_server", "--model-path"),
    "vllm": ("vllm", "serve"),
    "llamacpp": ("llama-server", "--model"),
}
_METHODS = {"mtp": "mtp", "eagle": "eagle", "eagle3": "eagle3", "dflash": "dflash", "standalone": "draft_model"}
_ALGORITHMS = {"mtp": "EAGLE", "eagle": "EAGLE", "eagle3": "EAGLE3", "dflash": "DFLASH", "standalone": "STANDALONE"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One command."""

    words: tuple[str, ...]
    """As the shell would hand them over: nothing is quoted yet."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The words in lines: the beginning, then each flag with its value."""
        found: list[list[str]] = [[]]
        for word in self.words:
            if word.startswith("--"):
                found.append([word])
            else:
                found[-1].append(word)
        return tuple(tuple(group) for group in found)


def launch(
    settings: EngineSettings,
    model: str,
    *,
    drafter: str | None = None,
    drafter_kind: str | None = None,
) -> Launch:
    """The command for these settings.

    model: a path or name that the engine knows. drafter: likewise, None for layers that come with the model.
    drafter_kind: as `Drafter.kind` has it; needed where the settings ask for speculation.
    """
    engine = engine_of(settings)
    words = [*_BEGINNINGS[engine], model]
    for name, value in stated_fields(settings).items():
        if name in VARIABLES or value is None:
            continue
        words += _words(engine, name, value, drafter, drafter_kind)
    if engine != "vllm" and drafter is not None and _is_speculating(settings):
        words += ["--speculative-draft-model-path" if engine == "sglang" else "--model-draft", drafter]
    environment = dict(variable for name, variable in VARIABLES.items() if getattr(settings, name, False))
    return Launch(words=tuple(words), environment=environment)


def algorithm_of(drafter_kind: str) -> str:
    """SGLang's name for the way a drafter of that kind works."""
    return _ALGORITHMS[drafter_kind]


def command_text(command: Launch) -> str:
    """For a POSIX shell, a flag a line."""
    environment = [f"{name}={shlex.quote(value)}" for name, value in command.environment.items()]
    lines = [" ".join(map(shlex.quote, group)) for group in command.groups]
    first = " ".join([*environment, lines[0]])
    return " \\\n  ".join([first, *lines[1:]]) + "\n"


def _is_speculating(settings: EngineSettings) -> bool:
    return getattr(settings, "speculative_algorithm", "") is not None


def _words(engine: str, name: str, value: object, drafter: str | None, drafter_kind: str | None) -> list[str]:
    flag = flag_name(engine, name)
    if name == "num_speculative_tokens":
        config = {"method": _METHODS.get(drafter_kind or "", drafter_kind), "num_speculative_tokens": value}
        if drafter is not None:
            config["model"] = drafter
        return [flag, json.dumps({key: each for key, each in config.items() if each is not None})]
    if name == "num_devices":
        return flag.split()
    if name == "flash_attn":
        return [flag, "on" if value else "off"]
    if name == "kv_unified":
        return [flag if value else "--no-kv-unified"]
    if name in _SWITCHES:
        return [flag] if value else []
    return [flag, f"{value:g}" if isinstance(value, float) else str(value)]
