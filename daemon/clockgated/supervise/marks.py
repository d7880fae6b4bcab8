"""Which programs have had their first start of this boot: only in that one may a program step the clock."""

import logging
from pathlib import Path

from clockgated.durable import replace_file

_log = logging.getLogger(__name__)


class StartMarks:
    """A file a name, holding the boot that it is about. Raises OSError when `folder` cannot be had."""

    def __init__(self, folder: Path, boot_id: str) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._boot_id = boot_id
        self._known: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether `name` has been up for long enough in this boot."""
        if name not in self._known and self._read(name) == self._boot_id:
            self._known.add(name)
        return name in self._known

    def put(self, name: str) -> None:
        """Note that it has. Known at least to this process, also when the disk refuses."""
        self._known.add(name)
        try:
            replace_file(self._path(name), self._boot_id.encode(), sync=False)
        except OSError as error:
            _log.warning("%s: its first start cannot be noted (%s); a later one may step the clock", name, error)

    def _read(self, name: str) -> str | None:
        try:
            return self._path(name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.started"
