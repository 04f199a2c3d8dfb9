"""The published builder (github.com/liranringel/ddtree, MIT), read from a folder that `setup.sh` filled.

Its module imports a training stack that building a tree doesn't need. So the one function is cut out of the file as
it stands and given the names it uses; the stage timers that it carries along are given their plainest form.
"""

from __future__ import annotations

import ast
import heapq
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deepdraft.errors import UsageError

FUNCTION = "build_ddtree_tree"
STAGES = "DDTREE_TREE_BUILD_STAGE_ORDER"


def published_builder(folder: Path) -> Callable[[Tensor, int], tuple[Any, ...]]:
    """(logits [L, V], budget) -> (token ids [n], depths [n], parents, child maps, visibility [n + 1, n + 1], times).

    Raises UsageError where the file is missing or has no such function.
    """
    path = folder / "ddtree.py"
    if not path.is_file():
        raise UsageError(f"no {path}", hint=f"run: benchmarks/tree/setup.sh {folder}")
    wanted = [node for node in ast.parse(path.read_text()).body if _is_wanted(node)]
    names: dict[str, Any] = {
        "heapq": heapq,
        "np": np,
        "time": time,
        "torch": torch,
        "cuda_time": time.perf_counter,
        "empty_stage_times": lambda stages: dict.fromkeys(stages, 0.0),
    }
    exec(compile(ast.Module(body=wanted, type_ignores=[]), str(path), "exec"), names)
    if FUNCTION not in names:
        raise UsageError(f"{path} has no function {FUNCTION}", hint=f"run: benchmarks/tree/setup.sh {folder}")
    builder: Callable[[Tensor, int], tuple[Any, ...]] = names[FUNCTION]
    return builder


def _is_wanted(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name == FUNCTION
    return isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == STAGES for target in node.targets
    )
