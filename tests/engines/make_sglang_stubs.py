"""Write the two stand-in packages that let SGLang start on a CPU without its CUDA kernels.

Usage: python make_sglang_stubs.py SITE_PACKAGES

SGLang imports `torchvision` (for image models) and `sgl_kernel` (CUDA and AMX kernels) before it
knows whether it needs them. The packages written here let those imports pass: every name exists,
in every submodule, and raises as soon as it is called. Text models with --device cpu and
--attention-backend torch_native never call one; speculation does, and fails.
"""

from __future__ import annotations

import sys
from pathlib import Path

STUB = '''"""A stand-in for {name}: every name imports, and raises once called."""

import importlib.abc
import importlib.machinery
import sys
import types

__version__ = "0.0.0+stub"


class _Name(type):
    """A class whose attributes are further stand-ins, so that enumerations and bases import."""

    def __getattr__(cls, item):
        if item.startswith("__"):
            raise AttributeError(item)
        made = _name(cls.__qualname__ + "." + item)
        setattr(cls, item, made)
        return made

    def __call__(cls, *args, **kwargs):
        raise RuntimeError(cls.__qualname__ + " is a stand-in and cannot be called")


def _name(path):
    return _Name(path.rpartition(".")[2], (), {{"__qualname__": path, "__module__": __name__}})


class _Module(types.ModuleType):
    def __getattr__(self, item):
        if item.startswith("__"):
            raise AttributeError(item)
        made = _name(self.__name__ + "." + item)
        setattr(self, item, made)
        return made


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname, path=None, target=None):
        if fullname.startswith(__name__ + "."):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


sys.modules[__name__].__class__ = _Module
sys.meta_path.append(_Submodules())
'''


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    site_packages = Path(sys.argv[1])
    for name in ("torchvision", "sgl_kernel"):
        package = site_packages / name / "__init__.py"
        if package.exists() and "stand-in" not in package.read_text(encoding="utf-8"):
            raise SystemExit(f"{package} is the real {name}; not overwriting it")
        package.parent.mkdir(parents=True, exist_ok=True)
        package.write_text(STUB.format(name=name), encoding="utf-8")
        print(package)


if __name__ == "__main__":
    main()
