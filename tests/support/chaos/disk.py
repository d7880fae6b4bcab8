"""A disk of a megabyte that fills up or turns read-only, and damage to the checkpoints on one.

Mounts are made in the mount namespace of this process, which must be its own: see `own_mounts`.
"""

import ctypes
import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from clockgate_trainer.checkpoint.layout import MANIFEST_FILE, step_in_name

_CLONE_NEWNS = 0x20000
_MS_PRIVATE_RECURSIVE = 0x44000
_BALLAST = "ballast"
_PAGE_BYTES = 4096
_ADAPTER = "adapter_model.safetensors"


def own_mounts() -> None:
    """Give this process, and those it starts, a mount namespace of their own. Before any thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) or libc.mount(b"none", b"/", None, _MS_PRIVATE_RECURSIVE, None):
        raise OSError(ctypes.get_errno(), "no mount namespace can be made: root is needed")


class SmallDisk:
    """A file system of a megabyte at `folder`, with a run in its folder `run`."""

    def __init__(self, folder: Path) -> None:
        self.run = folder / "run"
        self._folder = folder
        self._read_only = False
        folder.mkdir()
        _mount("-t", "tmpfs", "-o", "size=1M", "none", str(folder))
        self.run.mkdir()

    def turn(self, state: str) -> None:
        """Make it full, read-only or mended."""
        {"full": self.fill, "read-only": self.make_read_only, "mended": self.mend}[state]()

    def fill(self) -> None:
        """Take all room that is left."""
        if self._read_only:
            return
        with (self._folder / _BALLAST).open("ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(b"x" * _PAGE_BYTES)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def make_read_only(self) -> None:
        """Let nothing be created, renamed or removed in the run's folder."""
        if not self._read_only:
            _mount("--bind", str(self.run), str(self.run))
            _mount("-o", "remount,bind,ro", str(self.run))
            self._read_only = True

    def mend(self) -> None:
        """Make room and allow writing."""
        if self._read_only:
            subprocess.run(["umount", "--lazy", str(self.run)], check=True, timeout=20)
            self._read_only = False
        (self._folder / _BALLAST).unlink(missing_ok=True)

    def close(self) -> None:
        """Throw everything away."""
        self.mend()
        subprocess.run(["umount", "--lazy", str(self._folder)], check=True, timeout=20)


def damage(run: Path, kind: str) -> frozenset[int]:
    """Do one of `scenario.DAMAGES` to a run's folder; returns the steps of the checkpoints that are broken by it."""
    steps = [step for path in run.iterdir() if (step := step_in_name(path)) is not None] if run.exists() else []
    newest = max(steps, default=0)
    if len(steps) < 2 and kind not in _ADDITIONS:
        return frozenset()  # without another one to go on from, a start is refused, which other tests show
    return _DAMAGES[kind](run, run / f"checkpoint-{newest}", newest)


def _flip(run: Path, newest: Path, step: int) -> frozenset[int]:
    file = newest / _ADAPTER
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    return frozenset((step,))


def _truncate(run: Path, newest: Path, step: int) -> frozenset[int]:
    os.truncate(newest / MANIFEST_FILE, (newest / MANIFEST_FILE).stat().st_size // 2)
    return frozenset((step,))


def _remove(run: Path, newest: Path, step: int) -> frozenset[int]:
    (newest / "optimizer.pt").unlink()
    return frozenset((step,))


def _stale(run: Path, newest: Path, step: int) -> frozenset[int]:
    if step:
        shutil.copytree(newest, run / f".staging-checkpoint-{step + 1}-0123abcd")
    return frozenset()


def _empty(run: Path, newest: Path, step: int) -> frozenset[int]:
    (run / f"checkpoint-{step + 1}").mkdir(parents=True)
    return frozenset((step + 1,)) if step else frozenset()


_DAMAGES: Mapping[str, Callable[[Path, Path, int], frozenset[int]]] = {
    "flip a byte": _flip,
    "truncate the manifest": _truncate,
    "remove a file": _remove,
    "stale staging folder": _stale,
    "folder without a manifest": _empty,
}
_ADDITIONS = ("stale staging folder",)


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, timeout=20)
