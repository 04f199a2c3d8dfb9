"""The part of the package's build that is not Python: the library of native kernels, where there is a C++ compiler.

Without one, or when it fails, the package is built all the same and torch computes what the kernels would have. The
library has a plain C interface, so the wheel is of a platform but of no version of Python.
"""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILD = Path("src/deepdraft/infer/kernels/native/build.py")


class NativeAttentionHook(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles before a wheel is put together; an editable install finds the library among the sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library and add it to the wheel."""
        native = _module(Path(self.root) / BUILD)
        try:
            library: Path = native.build()
        except native.BuildError as error:
            self.app.display_warning(f"native kernels were not built, torch will do: {error}")
            return
        if version == "editable":
            return
        build_data["artifacts"].append(library.relative_to(self.root).as_posix())
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def _module(path: Path) -> ModuleType:
    """The build script alone: the package it lies in is not installed yet."""
    spec = importlib.util.spec_from_file_location("native_build", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} can't be read")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
