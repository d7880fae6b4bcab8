"""Writes the rows without a finding to a new file of JSON lines: whole or not at all, and never over anything."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from clockgate_trainer.errors import UsageError


def outputs(inputs: Sequence[Path], out: Path) -> dict[Path, Path]:
    """The clean copy's path for each input: `out` itself for one file, else one file each in the folder `out`.

    Raises UsageError when a copy would not be JSON lines or would take the place of something that is there.
    """
    if len(inputs) == 1 and not out.is_dir():
        wanted = {inputs[0]: out}
        if out.suffix != ".jsonl":
            raise UsageError(f"--fix {out}: clean copies are JSON lines, wanted a name that ends in .jsonl")
    else:
        wanted = {path: out / (path.name if path.suffix == ".jsonl" else f"{path.name}.jsonl") for path in inputs}
    for path, copy in wanted.items():
        if os.path.lexists(copy):
            what = "the file that is read" if copy.exists() and copy.samefile(path) else "there already"
            raise UsageError(f"--fix {copy} is {what}, and nothing is written over: give another name")
    if len(set(wanted.values())) < len(wanted):
        raise UsageError(f"--fix {out}: two of the files have the same name; fix them one by one")
    return wanted


class Copy:
    """A copy that is being written; `rows` counts what it holds so far."""

    def __init__(self, text: TextIO) -> None:
        self._text = text
        self.rows = 0

    def add(self, row: Mapping[str, object]) -> None:
        """Append a row. What JSON has no word for, such as a date in a parquet file, is written as text."""
        line = json.dumps(dict(row), ensure_ascii=False, default=str)
        try:
            line.encode()
        except UnicodeEncodeError:
            # A column that the format does not read may hold what is no text.
            line = json.dumps(dict(row), default=str)
        self._text.write(line + "\n")
        self.rows += 1


@contextmanager
def clean_copy(path: Path) -> Iterator[Copy]:
    """A copy that gets its name when the block ends well and it has rows; else nothing is left. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("x", encoding="utf-8") as text:
            copy = Copy(text)
            yield copy
            text.flush()
            os.fsync(text.fileno())
        if copy.rows:
            # A link, unlike a rename, does not take the place of a file that came meanwhile.
            path.hardlink_to(draft)
    finally:
        draft.unlink(missing_ok=True)
