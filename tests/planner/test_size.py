"""Bytes in words."""

import pytest

from deepdraft.planner.size import size_text

MIB = 2**20


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0"),
        (896 * MIB, "896 MiB"),
        (1023 * MIB, "1023 MiB"),
        (1024 * MIB, "1.00 GiB"),
        (72.4 * 1024 * MIB, "72.40 GiB"),
        (-448 * MIB, "-448 MiB"),
        (6.87 * MIB, "6.9 MiB"),
        (2000, "2.0 KiB"),
        (102_400, "0.1 MiB"),
    ],
)
def test_size(num_bytes, text) -> None:
    assert size_text(num_bytes) == text
