import struct

import pytest
from tests.planner.checkpoint import SHARDS, write_checkpoint, write_shard

from deepdraft.errors import UsageError
from deepdraft.planner.safetensors_header import checkpoint_tensors


def test_stored_bytes_over_all_files(tmp_path):
    tensors = checkpoint_tensors(write_checkpoint(tmp_path, SHARDS))
    assert tensors == SHARDS[0] | SHARDS[1]


def test_packed_integers_count_as_they_are_stored(tmp_path):
    """Four-bit weights stand in int32 words: what counts is bytes, not elements."""
    write_shard(tmp_path / "a.safetensors", {"w.weight_packed": 4096})
    assert sum(checkpoint_tensors(tmp_path).values()) == 4096


def test_a_folder_with_the_weights_twice_is_refused(tmp_path):
    write_checkpoint(tmp_path, SHARDS)
    write_shard(tmp_path / "consolidated.safetensors", {"lm_head.weight": 2000})
    with pytest.raises(UsageError, match=r"lm_head\.weight"):
        checkpoint_tensors(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n",
        struct.pack("<Q", 2**40),
        struct.pack("<Q", 10) + b"not json!!",
        struct.pack("<Q", 9) + b'{"a": {}}',
        struct.pack("<Q", 8) + b'{"a": 3}',
        struct.pack("<Q", 4) + b"[{}]",
    ],
    ids=["empty", "a Git LFS pointer", "a huge header", "no JSON", "no offsets", "no entry", "a list"],
)
def test_what_is_no_safetensors_file(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(UsageError, match=r"model\.safetensors"):
        checkpoint_tensors(tmp_path)


def test_a_folder_without_weights_says_what_to_give(tmp_path):
    with pytest.raises(UsageError, match="no safetensors") as refused:
        checkpoint_tensors(tmp_path)
    assert "--weight-bytes" in (refused.value.hint or "")
