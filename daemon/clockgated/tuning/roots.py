"""Where a host is looked at; other folders serve tests. Reads files; what cannot be read is None or empty."""

import os
from dataclasses import dataclass
from pathlib import Path

from clockgated.tuning.model import normal

_LONGEST_FILE = 32 << 20
_PIECE = 64 << 10


@dataclass(frozen=True)
class Roots:
    """The folders that a host is read below. `root` holds etc, run, usr and lib, where owners leave their files."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    root: Path = Path("/")

    def sysctl(self, key: str) -> Path:
        """The file of a dotted sysctl; a slash in `key` stands for a dot within a name (net.ipv4.conf.eth0/100.mtu)."""
        parts = [part.replace("/", ".") for part in key.split(".")]
        return self.proc.joinpath("sys", *parts)

    @property
    def netns_inode(self) -> int:
        """Inode of the network namespace of this process; 0 when it cannot be told."""
        try:
            return (self.proc / "self/ns/net").stat().st_ino
        except OSError:
            return 0

    @property
    def boot_id(self) -> str:
        """Identity of this boot, as `host.boot_id` tells it; empty when it cannot be told."""
        places = (self.proc / "1/root/proc", self.proc)
        return next(filter(None, (text_of(place / "sys/kernel/random/boot_id") for place in places)), "")


def text_of(path: Path) -> str | None:
    """The file in its normal spelling (one space between words, line ends included), odd bytes replaced."""
    text = raw_text_of(path)
    return None if text is None else normal(text)


def raw_text_of(path: Path) -> str | None:
    """The file as text, odd bytes replaced; its first 32 MiB (/proc/interrupts has a column for each CPU)."""
    data = bytearray()
    try:
        with path.open("rb", buffering=0) as file:
            # By pieces: /proc/sys refuses a read that asks for megabytes.
            while len(data) < _LONGEST_FILE and (piece := file.read(_PIECE)):
                data += piece
    except (OSError, ValueError):  # ValueError: a NUL in a name
        return None
    return data.decode(errors="replace")


def number_of(path: Path) -> int | None:
    """The whole number in a file of one number; some drivers answer -1 for "unknown", which is returned as it is."""
    text = text_of(path)
    try:
        return None if text is None else int(text, 0)
    except ValueError:
        return None


def link_name(path: Path) -> str | None:
    """The last component of what a link points at."""
    try:
        return path.readlink().name
    except OSError:
        return None


def names_in(folder: Path) -> list[str]:
    """The names in a folder, sorted; none when it cannot be read."""
    try:
        return sorted(path.name for path in folder.iterdir())
    except OSError:
        return []


def is_writable(path: Path) -> bool:
    """Whether the file's own mode lets its owner write, which root's access check passes over, and its mount does."""
    try:
        return bool(path.stat().st_mode & 0o200) and os.access(path, os.W_OK)
    except OSError:
        return False
