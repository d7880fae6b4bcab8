"""A support bundle: what every collector found, or why it found nothing, without secrets, in one private file.

A collector that fails, hangs or floods costs its own entry and nothing else.
"""

import io
import json
import os
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clockgated import durable
from clockgated.ctl.redact import redact
from clockgated.errors import ClockgateError

MOST_BYTES = 1024 * 1024
"""Kept of one entry: its end, where the newest lines of a log are."""

_README = """\
What clockgatectl support-bundle found on this node. MANIFEST.json says which collector took how long, and why one found
nothing. Values of keys that sound secret, private keys, tokens, logins and paths of URLs were replaced by [redacted];
names and addresses of machines and names of jobs were not: look before you pass it on.
"""


class BundleError(ClockgateError):
    """The bundle cannot be written where it was asked for."""


class NothingToCollectError(ClockgateError):
    """A collector has nothing to bring, and says why."""


@dataclass(frozen=True)
class Collector:
    """One entry of the bundle: its file name, what fills it, and how long that may take."""

    name: str
    collect: Callable[[], str]
    deadline_s: float = 5.0


@dataclass(frozen=True)
class Collected:
    """What became of one collector: `text`, or `problem` where there is none."""

    name: str
    text: str | None
    problem: str | None
    took_s: float


def collect_all(collectors: Sequence[Collector], tell: Callable[[str], None]) -> tuple[Collected, ...]:
    """Run them one after the other, each in a thread that is left behind when its time is over."""
    found = []
    for number, collector in enumerate(collectors, start=1):
        tell(f"collecting {collector.name} ({number} of {len(collectors)})")
        found.append(_collect(collector))
        if found[-1].problem:
            tell(f"no {collector.name}: {found[-1].problem}")
    return tuple(found)


def _collect(collector: Collector) -> Collected:
    began_ns = time.monotonic_ns()
    texts: list[str] = []
    problems: list[str] = []

    def run() -> None:
        try:
            texts.append(collector.collect())
        except (ClockgateError, OSError, ValueError) as error:
            problems.append(str(error) or type(error).__name__)

    thread = threading.Thread(target=run, name=f"collect {collector.name}", daemon=True)
    thread.start()
    thread.join(collector.deadline_s)
    took_s = (time.monotonic_ns() - began_ns) / 1e9
    if texts:
        return Collected(collector.name, texts[0], None, took_s)
    # A thread that ended without either died of a fault of the program, and Python has shown its traceback.
    silent = "it broke off" if not thread.is_alive() else f"no answer within {collector.deadline_s:g} s"
    return Collected(collector.name, None, problems[0] if problems else silent, took_s)


def pack(found: Sequence[Collected], folder: str, now_wall_s: int) -> bytes:
    """A tar.gz with everything below `folder`, redacted, each file readable by its owner alone."""
    manifest = [
        {"name": one.name, "took_s": round(one.took_s, 3), "problem": redact(one.problem) if one.problem else None}
        for one in found
    ]
    files = {"README.txt": _README, "MANIFEST.json": json.dumps({"collectors": manifest}, indent=2)}
    # Redacted before it is cut: half a secret would no longer look like one.
    files |= {one.name: redact(one.text) for one in found if one.text is not None}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            data = text.encode(errors="replace")[-MOST_BYTES:]
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, now_wall_s
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def check_target(path: Path) -> None:
    """Raise BundleError unless a new file can be made at `path`."""
    if path.exists() or path.is_symlink():
        raise BundleError(f"{path}: exists already; wanted a new name: --output OTHER.tar.gz")
    if not path.parent.is_dir():
        raise BundleError(f"{path.parent}: no such folder; create it, or name another with --output")
    if not os.access(path.parent, os.W_OK):
        raise BundleError(f"{path.parent}: not writable for this user; name another folder with --output")


def write(path: Path, data: bytes) -> None:
    """Put `data` at `path` at once, mode 0600, safe against a power cut. Raises BundleError, and leaves nothing.

    The draft has a name that nobody can foresee: the folder may be one that others write to.
    """
    try:
        descriptor, draft_name = tempfile.mkstemp(prefix=".clockgate-support-", dir=path.parent)
        draft = Path(draft_name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            # Unlike a rename this fails when the name has been taken meanwhile.
            os.link(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        durable.sync_folder(path.parent)
    except OSError as error:
        raise BundleError(f"{path}: cannot be written: {error.strerror}; name another place with --output") from None
