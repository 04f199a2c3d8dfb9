"""Reads and writes results files: JSON lines, appended and flushed to the disk one request at a time.

A crash can only tear the last line. Writing never leaves half a line behind when it can help it; reading keeps
every good line and says what it lost; resuming cuts a torn tail off and says so.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import msgspec

from deepdraft.errors import DiskFull, ResultsError
from deepdraft.records.component import ComponentHeader, ComponentLine
from deepdraft.records.component_file import KIND as COMPONENT_KIND
from deepdraft.records.line import (
    End,
    Header,
    Line,
    Measurement,
    Note,
    Refusal,
    Trial,
)
from deepdraft.records.reported import Reported
from deepdraft.records.run import Run
from deepdraft.records.stored_line import first_kind, read_content, stamp_decoder, stored_records

_TYPE = {
    "header": Header,
    "measurement": Measurement,
    "trial": Trial,
    "reported": Reported,
    "refusal": Refusal,
    "note": Note,
    "end": End,
}


class ResultsWriter:
    """Appends lines to a results file; each `append` is on the disk when it returns."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def create(cls, path: Path, header: Header | ComponentHeader) -> ResultsWriter:
        """Begin a new file. Raises ResultsError when it exists already or can't be made."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        except FileExistsError:
            raise ResultsError(
                f"{path} exists already",
                hint=f"continue it with --resume {path}, or name another file with --out",
            ) from None
        except OSError as error:
            raise ResultsError(f"can't write {path}: {error.strerror}") from None
        _lock(descriptor, path)
        writer = cls(path, descriptor)
        try:
            writer.append(header)
        except ResultsError:
            writer.close()
            path.unlink(missing_ok=True)
            raise
        return writer

    @classmethod
    def resume(cls, path: Path) -> tuple[ResultsWriter, str | None]:
        """Open an existing file for more lines, cutting off a torn last line.

        Returns the writer and, when something was repaired, a sentence that says what.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        except OSError as error:
            raise ResultsError(f"can't open {path}: {error.strerror}") from None
        _lock(descriptor, path)
        repair = _cut_torn_tail(descriptor, path)
        return cls(path, descriptor), repair

    def append(self, *lines: Line | ComponentLine) -> None:
        """Write the lines in one go and wait until the disk has them.

        Raises DiskFull when there is no room (the file is cut back to whole lines), ResultsError for other faults.
        """
        block = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        start = os.lseek(self._descriptor, 0, os.SEEK_END)
        try:
            written = 0
            while written < len(block):
                written += os.write(self._descriptor, block[written:])
            os.fsync(self._descriptor)
        except OSError as error:
            _truncate_quietly(self._descriptor, start)
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise DiskFull(
                    f"no room to write {self.path} ({error.strerror}); everything before this line is kept",
                    hint=f"free some space, then continue with --resume {self.path}",
                ) from None
            if error.errno == errno.EINVAL:  # a pipe or a character device can't be fsynced: nothing to wait for
                return
            raise ResultsError(f"can't write {self.path}: {error.strerror}") from None

    def close(self) -> None:
        """Close the file; it is complete up to the last append."""
        os.close(self._descriptor)


def _lock(descriptor: int, path: Path) -> None:
    """Keep the file to one writer; the lock goes with the descriptor, also after `kill -9`.

    Raises ResultsError when another process writes it; the descriptor is closed then.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ResultsError(
            f"another process is writing {path}", hint="wait until that sweep ends, or stop it"
        ) from None
    except OSError:
        return  # a file system without locks: two writers are then the user's to avoid


def _truncate_quietly(descriptor: int, length: int) -> None:
    try:
        os.ftruncate(descriptor, length)
    except OSError:
        return  # the reader copes with a torn line; the first fault is the one to report


def _cut_torn_tail(descriptor: int, path: Path) -> str | None:
    content = path.read_bytes()
    keep = content.rfind(b"\n") + 1
    last = content[content.rfind(b"\n", 0, keep - 1) + 1 : keep] if keep else b""
    if last:  # a whole line may still be garbage, when the machine went down while the disk was writing
        try:
            stamp_decoder.decode(last)
        except msgspec.MsgspecError:
            keep -= len(last)
    if keep == len(content):
        return None
    os.ftruncate(descriptor, keep)
    return f"the last line was torn ({len(content) - keep} bytes) and was cut off; its request is measured again"


def read_run(path: Path) -> Run:
    """Read a results file. Bad lines are left out and named in `damage`.

    Raises ResultsError when the file can't be read, is empty, is not ours, holds a component's results, or was
    written by a newer Deepdraft.
    """
    content = read_content(path)
    if first_kind(content) == COMPONENT_KIND:
        raise ResultsError(
            f"{path} holds a component's results, not a sweep", hint="`deepdraft show` and `compare` read it"
        )
    records, damage = stored_records(path, content, _TYPE)
    if not records or not isinstance(records[0], Header):
        raise ResultsError(
            f"{path} is not a Deepdraft results file" + (f": {damage[0]}" if damage else ""),
            hint="give a file written by `deepdraft sweep --out`",
        )
    return Run(
        header=records[0],
        measurements=tuple(r for r in records if isinstance(r, Measurement)),
        trials=tuple(r for r in records if isinstance(r, Trial)),
        reported=tuple(r for r in records if isinstance(r, Reported)),
        refusals=tuple(r for r in records if isinstance(r, Refusal)),
        notes=tuple(r for r in records if isinstance(r, Note)),
        ends=tuple(r for r in records if isinstance(r, End)),
        damage=tuple(damage),
    )
