"""Build the native library, attention and feed-forward, with this machine's C++ compiler.

    python -m deepdraft.infer.kernels.native.build

The package's build does the same from these files alone, so only the standard library is imported. The library has
a plain C interface: it belongs to no version of Python. It holds a kernel for each instruction set that the compiler
knows and chooses among them when it runs: nothing is tuned to the machine that it is built on.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
LIBRARY = FOLDER / "libdeepdraft_attention.so"
"""Where the library is, once built; the name is the same on every system."""
COMMAND = "python -m deepdraft.infer.kernels.native.build"
TIMEOUT_S = 300
OF_EACH_SET = ("kernel", "product")
OF_ALL_SETS = ("attention", "experts", "instruction_sets", "linear", "router", "threads")
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-ffp-contract=fast", "-fno-math-errno", "-pthread")


class BuildError(Exception):
    """There is no library; the text says why, in one line."""


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """What the sources OF_EACH_SET are compiled for."""

    name: str
    lanes: int
    """Numbers of float32 in a vector"""
    flags: tuple[str, ...] = ()


PORTABLE = InstructionSet("portable", 4)
"""What every processor of the kind has: SSE2, NEON."""
X86 = (
    InstructionSet("avx2", 8, ("-mavx2", "-mfma", "-mf16c")),
    InstructionSet("avx512", 16, ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma", "-mf16c")),
)


def build(library: Path = LIBRARY, *, extra_flags: Sequence[str] = ()) -> Path:
    """Compile and link; an older library is replaced at once, whoever has it loaded. Raises BuildError."""
    compiler = _compiler()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            built = _compiled(compiler, Path(scratch), extra_flags)
            beside = library.with_name(f"{library.name}.{os.getpid()}")
            shutil.copy(built, beside)
            beside.replace(library)
    except OSError as error:
        raise BuildError(str(error)) from None
    return library


def fingerprint() -> str:
    """Of the sources as they are now; the library carries that of the sources it was built from."""
    sources = sorted((*FOLDER.glob("*.cpp"), *FOLDER.glob("*.h")))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]


def _compiler() -> list[str]:
    """$CXX, else the first that is found."""
    if os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    raise BuildError("no C++ compiler was found (g++ or clang++, or $CXX)")


def _knows(compiler: Sequence[str], one: InstructionSet, scratch: Path) -> bool:
    empty = scratch / "empty.cpp"
    empty.touch()
    try:
        _run([*compiler, *one.flags, "-c", str(empty), "-o", str(scratch / "empty.o")])
    except BuildError:
        return False
    return True


def _compiled(compiler: Sequence[str], scratch: Path, extra_flags: Sequence[str]) -> Path:
    sets = [PORTABLE]
    if platform.machine().lower() in ("x86_64", "amd64"):
        sets += [one for one in X86 if _knows(compiler, one, scratch)]
    objects = []
    for one in sets:
        defined = (f"-DDEEPDRAFT_SET={one.name}", f"-DDEEPDRAFT_LANES={one.lanes}")
        for source in OF_EACH_SET:
            objects.append(scratch / f"{source}.{one.name}.o")
            compiled = ("-c", f"{source}.cpp", "-o", str(objects[-1]))
            _run([*compiler, *FLAGS, *extra_flags, *one.flags, *defined, *compiled])
    known = [f"-DDEEPDRAFT_{one.name.upper()}" for one in sets] + [f'-DDEEPDRAFT_FINGERPRINT="{fingerprint()}"']
    for source in OF_ALL_SETS:
        objects.append(scratch / f"{source}.o")
        _run([*compiler, *FLAGS, *extra_flags, *known, "-c", f"{source}.cpp", "-o", str(objects[-1])])
    library = scratch / LIBRARY.name
    _run([*compiler, *FLAGS, *extra_flags, "-shared", *map(str, objects), "-o", str(library)])
    return library


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{command[0]} did not run: {error}") from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        first = next((line for line in said if "error" in line), said[0] if said else "nothing was said")
        raise BuildError(f"{command[0]} failed: {first}")


if __name__ == "__main__":
    try:
        print(build())
    except BuildError as error:
        sys.exit(f"error: {error}")
