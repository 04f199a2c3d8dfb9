"""The library's build, as the package's build and people run it. Compiling takes seconds, so one test does it all."""

import _ctypes
import ctypes
import shutil
from pathlib import Path

import pytest

from deepdraft.infer.kernels.native import build as native
from deepdraft.infer.kernels.native import library


def test_without_a_compiler_the_reason_is_one_line(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(native.BuildError, match=r"^no C\+\+ compiler was found"):
        native.build(tmp_path / "lib.so")


@pytest.mark.parametrize("compiler", ["/nowhere/c++", "false"])
def test_a_compiler_that_fails_leaves_no_library_and_one_line(monkeypatch, tmp_path, compiler):
    monkeypatch.setenv("CXX", compiler)
    with pytest.raises(native.BuildError) as failed:
        native.build(tmp_path / "lib.so")
    assert "\n" not in str(failed.value) and compiler in str(failed.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler")
def test_a_mistake_in_the_sources_is_told_as_the_compiler_tells_it(monkeypatch, tmp_path):
    with pytest.raises(native.BuildError, match="error") as failed:
        native.build(tmp_path / "lib.so", extra_flags=("-DDeepdraftAttention=7",))
    assert "\n" not in str(failed.value)


def test_a_folder_that_cannot_be_written_is_a_reason_too(monkeypatch, tmp_path):
    monkeypatch.setattr(native, "_compiled", lambda *_: tmp_path / "never.so")
    with pytest.raises(native.BuildError, match=r"never\.so"):
        native.build(tmp_path / "lib.so")


def test_no_library_and_a_strangers_library_are_told_apart(tmp_path):
    with pytest.raises(library.NotBuilt, match=r"^it was not built with the package$"):
        library.load(tmp_path / "none.so")
    broken = tmp_path / "broken.so"
    broken.write_text("no library")
    with pytest.raises(library.NotBuilt, match=r"^it can't be loaded: "):
        library.load(broken)


def test_a_library_of_other_sources_is_not_called(monkeypatch, tmp_path):
    """Its structure may be another."""
    if not native.LIBRARY.exists():
        pytest.skip("the library was not built")
    copied = shutil.copy(native.LIBRARY, tmp_path / "old.so")
    monkeypatch.setattr(library, "fingerprint", lambda: "0123456789abcdef")
    with pytest.raises(library.NotBuilt, match=r"^it was built from other sources"):
        library.load(copied)


def test_another_library_in_its_place_is_not_called():
    with pytest.raises(library.NotBuilt, match=r"^its file is another library$"):
        library.load(Path(_ctypes.__file__))


def test_the_structure_is_as_wide_as_in_c():
    """Eleven addresses, four strides, seven numbers, the scale: nothing is padded."""
    assert ctypes.sizeof(library.Attention) == 11 * 8 + 4 * 8 + 8 * 4
