"""A systemd unit that starts a server with planned settings. Quoting as systemd.service(5) and systemd.exec(5) say:
C-style escapes in double quotes, `%%` for a per cent sign, `$$` for a dollar sign."""

from __future__ import annotations

import re

from deepdraft.planner.launch import Launch

_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]+")
_START_LIMIT_S = 1800
"""Weights of hundreds of GB take minutes to load; systemd's own limit of 90 s would end the start."""


def unit_text(command: Launch, description: str, *, directory: str | None = None) -> str:
    """The unit. Restarts after a crash, but not in a loop: a setting that runs out of memory would load its weights
    for ever.

    description: one line. directory: the working directory, None: systemd's own.
    """
    environment = [
        f"Environment={quoted(f'{name}={value}', is_command=False)}" for name, value in command.environment.items()
    ]
    lines = [" ".join(quoted(word) for word in group) for group in command.groups]
    return "\n".join(
        [
            "[Unit]",
            f"Description={_in_a_line(description)}",
            "After=network-online.target",
            "Wants=network-online.target",
            "StartLimitIntervalSec=1h",
            "StartLimitBurst=3",
            "",
            "[Service]",
            "Type=exec",
            *([f"WorkingDirectory={_specifiers(directory)}"] if directory is not None else []),
            *environment,
            f"ExecStart=/usr/bin/env {lines[0]} \\" if len(lines) > 1 else f"ExecStart=/usr/bin/env {lines[0]}",
            *(f"  {line} \\" for line in lines[1:-1]),
            *(f"  {line}" for line in lines[1:][-1:]),
            "Restart=on-failure",
            "RestartSec=10",
            f"TimeoutStartSec={_START_LIMIT_S}",
            "TimeoutStopSec=120",
            "KillMode=mixed",
            "LimitMEMLOCK=infinity",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )


def quoted(word: str, *, is_command: bool = True) -> str:
    """One word of a command line, or of an environment assignment, where a dollar sign stands for itself.

    Raises ValueError for NUL, which no unit can hold.
    """
    if "\0" in word:
        raise ValueError("a NUL byte in a word of a unit")
    text = _specifiers(word)
    if is_command:
        text = text.replace("$", "$$")
    if text == word and _PLAIN.fullmatch(word):
        return word
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{text}"'


def _specifiers(text: str) -> str:
    return text.replace("%", "%%")


def _in_a_line(text: str) -> str:
    return _specifiers(" ".join(text.split())).rstrip("\\")
