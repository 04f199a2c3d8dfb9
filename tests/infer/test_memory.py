"""Free memory as the kernel's files tell it, with and without a container's limit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from deepdraft.infer.memory import available_bytes

CPU = torch.device("cpu")
KIB = 1024


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = {"proc/meminfo": "MemTotal:        8000 kB\nMemAvailable:    5000 kB\nHugePages_Total:       0\n"}


def test_without_a_limit(tmp_path: Path) -> None:
    unlimited = {"sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/memory.current": "77\n"}
    assert available_bytes(CPU, root=write(tmp_path, MEMINFO)) == 5000 * KIB
    assert available_bytes(CPU, root=write(tmp_path, unlimited)) == 5000 * KIB


@pytest.mark.parametrize(("limit", "expected"), [(3_000_000, 2_000_000 + 4096), (90_000_000, 5000 * KIB), (1000, 0)])
def test_a_container_s_limit_version_2(tmp_path: Path, limit: int, expected: int) -> None:
    files = {
        "sys/fs/cgroup/memory.max": f"{limit}\n",
        "sys/fs/cgroup/memory.current": "1000000\n",
        "sys/fs/cgroup/memory.stat": "anon 12345\ninactive_file 4096\n",
    }
    assert available_bytes(CPU, root=write(tmp_path, MEMINFO | files)) == expected


def test_a_container_s_limit_version_1(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "3000000\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000000\n",
        "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 500000\n",
    }
    assert available_bytes(CPU, root=write(tmp_path, MEMINFO | files)) == 2_500_000


def test_a_system_that_tells_its_size_alone(tmp_path: Path) -> None:
    assert 2**20 < available_bytes(CPU) < 2 * available_bytes(CPU, root=tmp_path) < 2**50


def test_this_machine() -> None:
    assert 2**20 < available_bytes(CPU) < 2**50
