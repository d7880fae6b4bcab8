"""Small JSON files that are either whole or as they were before, also after a power cut."""

import json
import os
from collections.abc import Mapping
from pathlib import Path


def write_json(path: Path, content: Mapping[str, object], *, indent: int | None = None) -> None:
    """Put `content` at `path`, atomically and durably. Raises OSError and leaves what was there."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=indent)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
