"""Which file sets a sysctl at boot: the merge that systemd-sysctl makes, with file and line of the winner.

The rules (systemd's sysctl.d(5)): of files with the same name the one in etc wins over run, usr/local/lib, usr/lib and
lib, and a link to /dev/null masks all of them; what is left is read in the order of the names, whatever their folders;
the last assignment of a key wins, and a key that is named is never touched by a pattern. /etc/sysctl.conf counts
through the usual link 99-sysctl.conf; without the link it is not read at boot, but is still an administrator's word
where nobody else speaks. `merged` is pure; `read_files` reads.
"""

import fnmatch
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from clockgated.tuning.model import Owner, OwnerKind, normal
from clockgated.tuning.roots import names_in, raw_text_of

FOLDERS = ("etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d", "lib/sysctl.d")
"""The strongest first, for files of the same name."""
_ADMIN_FOLDERS = ("etc/", "run/")
_PATTERN_CHARACTERS = "*?["


@dataclass(frozen=True)
class SysctlFile:
    """One file: its path as people name it, and its text; `text` None stands for a link to /dev/null."""

    path: str
    text: str | None

    @property
    def name(self) -> str:
        """The name that decides its place in the order."""
        return self.path.rpartition("/")[2]

    @property
    def kind(self) -> OwnerKind:
        """Whose word it is."""
        is_admins = self.path.lstrip("/").startswith(_ADMIN_FOLDERS)
        return OwnerKind.ADMIN_FILE if is_admins else OwnerKind.VENDOR_FILE


def read_files(root: Path) -> tuple[tuple[SysctlFile, ...], SysctlFile | None]:
    """Every .conf file of the folders below `root`, the strongest folder first, and etc/sysctl.conf."""
    found = []
    for folder in FOLDERS:
        if folder == "lib/sysctl.d" and (root / "lib").is_symlink():
            continue  # the same folder as usr/lib once more
        for name in names_in(root / folder):
            if name.endswith(".conf"):
                path = root / folder / name
                is_mask = path.is_symlink() and os.readlink(path) == os.devnull  # noqa: PTH115 - as it is spelled
                found.append(SysctlFile(f"/{folder}/{name}", None if is_mask else raw_text_of(path) or ""))
    text = raw_text_of(root / "etc/sysctl.conf")
    return tuple(found), None if text is None else SysctlFile("/etc/sysctl.conf", text)


def merged(files: Iterable[SysctlFile], sysctl_conf: SysctlFile | None = None) -> Mapping[str, Owner]:
    """For every key or pattern that is assigned the entry that wins. `files`: the strongest folder first."""
    by_name: dict[str, SysctlFile] = {}
    for file in files:
        by_name.setdefault(file.name, file)
    winners: dict[str, Owner] = {}
    for name in sorted(by_name):
        winners |= _assignments(by_name[name])
    if sysctl_conf is not None:
        winners = _assignments(sysctl_conf) | winners
    return winners


def owner_of(key: str, winners: Mapping[str, Owner]) -> Owner | None:
    """Who sets `key` at boot: by its name, else by the last pattern that fits it."""
    if key in winners:
        return winners[key]
    fitting = [name for name in winners if any(c in name for c in _PATTERN_CHARACTERS) and _fits(key, name)]
    return winners[fitting[-1]] if fitting else None


def dotted(key: str) -> str:
    """A key in the spelling with dots: a slash first means that slashes separate, and dots belong to names."""
    first = next((c for c in key if c in "./"), ".")
    return key.translate(str.maketrans("./", "/.")) if first == "/" else key


def _fits(key: str, pattern: str) -> bool:
    parts, wanted = key.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def _assignments(file: SysctlFile) -> dict[str, Owner]:
    found: dict[str, Owner] = {}
    for number, line in enumerate((file.text or "").splitlines(), start=1):
        bare = line.strip()
        if not bare or bare[0] in "#;":
            continue
        key, equals, value = bare.partition("=")
        # A leading minus: an error is passed over; without a value it only takes the key out of patterns.
        name = dotted(key.strip().removeprefix("-").strip())
        if equals and name:
            # Assigned again, it takes the later place among patterns too.
            found.pop(name, None)
            found[name] = Owner(file.kind, f"{file.path}:{number}", normal(value))
    return found
