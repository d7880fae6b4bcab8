"""The only place where checkpoints touch the disk. Every failure is an OSError with errno and path."""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class FileDigest:
    """Content of a file: SHA-256 in hex, and size."""

    sha256: str
    bytes: int


class Files(Protocol):
    """File operations of a checkpoint. Those that change something are one step each: a crash falls between two."""

    def make_folder(self, path: Path) -> None:
        """Make `path` and what is missing above it; `path` itself must not be there."""

    def write(self, path: Path, content: bytes | memoryview) -> None:
        """Make the new file `path` and bring it to disk."""

    def sync_file(self, path: Path) -> None:
        """Bring a file that somebody else wrote to disk, and forget it in memory, so that it is read back from disk."""

    def sync_folder(self, path: Path) -> None:
        """Bring the names in `path` to disk."""

    def rename(self, source: Path, target: Path) -> None:
        """Give `source` the name `target`, which must be free, at once or not at all."""

    def replace(self, source: Path, target: Path) -> None:
        """Give the file `source` the name `target`, in the place of a file that has it, at once or not at all."""

    def remove_tree(self, path: Path) -> None:
        """Remove a folder and all in it."""

    def remove_file(self, path: Path) -> None:
        """Remove the file `path`."""

    def digest(self, path: Path) -> FileDigest:
        """Hash the regular file `path`."""

    def size(self, path: Path) -> int:
        """Bytes in the regular file `path`."""

    def read(self, path: Path) -> bytes:
        """Content of the regular file `path`."""

    def list_files(self, folder: Path) -> tuple[str, ...]:
        """Every entry below `folder` that is not a folder, sorted, as its path within it."""

    def list_folders(self, folder: Path) -> tuple[Path, ...]:
        """The folders directly in `folder`, sorted; none when `folder` itself is not there."""

    def list_loose(self, folder: Path) -> tuple[Path, ...]:
        """What is directly in `folder` and no folder, sorted; none when `folder` itself is not there."""


class HostFiles:
    """The machine's own files."""

    def make_folder(self, path: Path) -> None:
        """See Files."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir()

    def write(self, path: Path, content: bytes | memoryview) -> None:
        """See Files."""
        with _naming(path), path.open("xb", buffering=0) as file:
            left = memoryview(content).cast("B")
            while left:
                left = left[file.write(left) :]
        self.sync_file(path)

    def sync_file(self, path: Path) -> None:
        """See Files."""
        with _naming(path), _regular(path) as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def sync_folder(self, path: Path) -> None:
        """See Files."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with _naming(path):
                os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, source: Path, target: Path) -> None:
        """See Files."""
        source.rename(target)

    def replace(self, source: Path, target: Path) -> None:
        """See Files."""
        source.replace(target)

    def remove_tree(self, path: Path) -> None:
        """See Files."""
        shutil.rmtree(path)

    def remove_file(self, path: Path) -> None:
        """See Files."""
        path.unlink()

    def digest(self, path: Path) -> FileDigest:
        """See Files."""
        digest, size = hashlib.sha256(), 0
        with _naming(path), _regular(path) as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
                size += len(block)
        return FileDigest(digest.hexdigest(), size)

    def size(self, path: Path) -> int:
        """See Files."""
        with _naming(path), _regular(path) as file:
            return os.fstat(file.fileno()).st_size

    def read(self, path: Path) -> bytes:
        """See Files."""
        with _naming(path), _regular(path) as file:
            return file.read()

    def list_files(self, folder: Path) -> tuple[str, ...]:
        """See Files."""
        found: list[str] = []
        for below, _, names in os.walk(folder, onerror=_raise):
            found.extend((Path(below) / name).relative_to(folder).as_posix() for name in names)
        return tuple(sorted(found))

    def list_folders(self, folder: Path) -> tuple[Path, ...]:
        """See Files."""
        try:
            return tuple(sorted(path for path in folder.iterdir() if path.is_dir()))
        except FileNotFoundError:
            return ()

    def list_loose(self, folder: Path) -> tuple[Path, ...]:
        """See Files."""
        try:
            return tuple(sorted(path for path in folder.iterdir() if not path.is_dir()))
        except FileNotFoundError:
            return ()


HOST: Files = HostFiles()


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Add the path to an OSError that was raised on an open file and so has none."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def _regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. Never waits for the other end of a pipe, never follows a link."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(handle, "rb")


def _raise(error: OSError) -> None:
    raise error
