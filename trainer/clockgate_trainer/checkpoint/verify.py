"""Whether a checkpoint is on disk as it was written."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from clockgate_trainer.checkpoint.files import HOST, FileDigest, Files
from clockgate_trainer.checkpoint.layout import MANIFEST_FILE, step_in_name
from clockgate_trainer.checkpoint.manifest import Manifest, ManifestError, from_json


class Fault(Enum):
    """What is wrong with a file."""

    MISSING = "missing"
    UNREADABLE = "unreadable"
    MALFORMED = "malformed"
    SIZE = "size differs"
    CONTENT = "content differs"
    STEP = "step differs"


@dataclass(frozen=True)
class Problem:
    """One file that is not as it was written; `detail` is a sentence with value seen and value wanted."""

    file: str
    fault: Fault
    detail: str

    def __str__(self) -> str:
        return f"{self.file}: {self.detail}"


def verify(path: Path, files: Files = HOST) -> tuple[Problem, ...]:
    """Read a checkpoint back and name everything that differs from its manifest; empty: verified.

    Files that the manifest does not name are nobody's concern. Never raises for the state of the disk.
    """
    manifest = read_manifest(path, files)
    if isinstance(manifest, Problem):
        return (manifest,)
    return compare(manifest.files, {name: look(path / name, name, files) for name in manifest.files})


def misnamed(path: Path, manifest: Manifest) -> Problem | None:
    """What is wrong when the folder's name claims another step than its manifest; None when they agree. Pure.

    Not part of `verify`: the content is whole, and resume goes by the manifest. A person goes by the name.
    """
    claimed = step_in_name(path)
    if claimed is None or claimed == manifest.step:
        return None
    told = f"is of step {manifest.step:,}, and the folder's name says {claimed:,}: rename it, or restore the right one"
    return Problem(MANIFEST_FILE, Fault.STEP, told)


def verify_sizes(path: Path, manifest: Manifest, files: Files) -> bool:
    """Whether every file is there with its size: a quick look that does not read contents."""
    try:
        return all(files.size(path / name) == wanted.bytes for name, wanted in manifest.files.items())
    except OSError:
        return False


def read_manifest(path: Path, files: Files) -> Manifest | Problem:
    """The manifest of the checkpoint in `path`, or why there is none."""
    try:
        return from_json(files.read(path / MANIFEST_FILE))
    except ManifestError as error:
        return Problem(MANIFEST_FILE, Fault.MALFORMED, str(error).removeprefix(f"{MANIFEST_FILE}: "))
    except OSError as error:
        return _unreadable(MANIFEST_FILE, error)


def look(path: Path, name: str, files: Files) -> FileDigest | Problem:
    """The content of the file at `path`, called `name`, or why it cannot be read."""
    try:
        return files.digest(path)
    except OSError as error:
        return _unreadable(name, error)


def compare(wanted: Mapping[str, FileDigest], seen: Mapping[str, FileDigest | Problem]) -> tuple[Problem, ...]:
    """Every difference between what was written and what is there, in the order of names. Pure."""
    judged = (_judge(name, wanted[name], seen[name]) for name in sorted(wanted))
    return tuple(problem for problem in judged if problem is not None)


def _judge(name: str, wanted: FileDigest, seen: FileDigest | Problem) -> Problem | None:
    if isinstance(seen, Problem):
        return seen
    if seen.bytes != wanted.bytes:
        return Problem(name, Fault.SIZE, f"{seen.bytes:,} bytes, wanted {wanted.bytes:,}")
    if seen.sha256 != wanted.sha256:
        return Problem(name, Fault.CONTENT, f"sha256 {seen.sha256[:12]}..., wanted {wanted.sha256[:12]}...")
    return None


def _unreadable(name: str, error: OSError) -> Problem:
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return Problem(name, Fault.MISSING, "is not there")
    return Problem(name, Fault.UNREADABLE, f"cannot be read ({error.strerror})")
