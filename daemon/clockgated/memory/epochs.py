"""The journal of disruptions: one JSON object a line, bounded, each line on disk before anybody acts on it.

A line that cannot be read (the last one, torn by a power cut, or one that somebody edited) is skipped and told; it
never hides the others.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from clockgated.clock.continuity import Look
from clockgated.clock.model import Reason
from clockgated.durable import replace_file, sync_folder
from clockgated.memory.fields import read_int, read_object, read_optional_int, read_text

_MAX_LINE_BYTES = 4096
_MAX_DETAIL_CHARACTERS = 300


@dataclass(frozen=True)
class Disruption:
    """The beginning of `epoch`: when, by both clocks, and why.

    `code` is the name of a ReasonCode; kept as a text, so that the journal of a newer release can be read. `wall_ns`
    is what the wall clock said after the disruption: for people, never for computing. `jump_ns` is how far the wall
    clock was set (positive: forward), where that is known.
    """

    epoch: int
    boot_id: str
    at_boot_ns: int
    wall_ns: int
    code: str
    detail: str
    jump_ns: int | None = None


@dataclass(frozen=True)
class JournalContent:
    """The disruptions in a journal, oldest first, and one sentence for each line that was skipped."""

    disruptions: tuple[Disruption, ...] = ()
    discarded: tuple[str, ...] = ()


def encode(disruption: Disruption) -> bytes:
    """One line, with its end."""
    fields = {**asdict(disruption), "detail": disruption.detail[:_MAX_DETAIL_CHARACTERS]}
    return json.dumps(fields).encode() + b"\n"


def parse(data: bytes) -> JournalContent:
    """Everything readable in a journal. Never raises."""
    disruptions, discarded = [], []
    lines = data.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            disruptions.append(_parse_line(line))
        except (ValueError, RecursionError) as error:
            torn = " (the last line, torn off)" if number == len(lines) else ""
            discarded.append(f"line {number}{torn}: {error!s:.200}")
    return JournalContent(tuple(disruptions), tuple(discarded))


def disruption(
    epoch: int, boot_id: str, look: Look, causes: Sequence[Reason], jump_ns: int | None = None
) -> Disruption:
    """The line for an epoch that began at `look`, because of one cause or several."""
    first, *others = causes
    detail = "; ".join([first.detail, *(f"{cause.code.name}: {cause.detail}" for cause in others)])
    return Disruption(epoch, boot_id, look.boot_ns, look.wall_ns, first.code.name, detail, jump_ns)


def highest_epoch(disruptions: Sequence[Disruption], boot_id: str) -> int | None:
    """The last epoch that began under `boot_id`; None when the journal knows of none."""
    return max((one.epoch for one in disruptions if one.boot_id == boot_id), default=None)


def _parse_line(line: bytes) -> Disruption:
    if len(line) > _MAX_LINE_BYTES:
        raise ValueError(f"{len(line)} bytes, wanted at most {_MAX_LINE_BYTES}")
    fields = read_object(json.loads(line))
    return Disruption(
        epoch=read_int(fields, "epoch"),
        boot_id=read_text(fields, "boot_id"),
        at_boot_ns=read_int(fields, "at_boot_ns"),
        wall_ns=read_int(fields, "wall_ns"),
        code=read_text(fields, "code"),
        detail=read_text(fields, "detail"),
        jump_ns=read_optional_int(fields, "jump_ns"),
    )


class EpochJournal:
    """The journal at `path`, holding the newest `keep` disruptions or more, never more than twice as many."""

    def __init__(self, path: Path, keep: int = 1000) -> None:
        self._path = path
        self._keep = keep
        # A larger file is not ours, or not any more; only its end is read.
        self._max_bytes = 2 * keep * _MAX_LINE_BYTES

    def read(self) -> JournalContent:
        """Everything readable in it. Never raises; no file is an empty journal."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - self._max_bytes))
                data = file.read(self._max_bytes)
        except FileNotFoundError:
            return JournalContent()
        except OSError as error:
            return JournalContent(discarded=(f"{self._path} cannot be read: {error.strerror}",))
        return parse(data)

    def append(self, disruption: Disruption) -> str | None:
        """Write one, durably; None, or why that was not possible. A full disk must not stop the daemon."""
        try:
            self._append(encode(disruption))
        except OSError as error:
            return f"{self._path}: the disruption of epoch {disruption.epoch} is not recorded: {error.strerror}"
        return None

    def _append(self, line: bytes) -> None:
        is_new = not self._path.exists()
        if not is_new:
            self._shorten()
        with self._path.open("a+b") as file:
            file.seek(0, os.SEEK_END)
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                # After a torn line the next one must not be glued to it.
                line = line if file.read(1) == b"\n" else b"\n" + line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync_folder(self._path.parent)

    def _shorten(self) -> None:
        """Rewrite a journal of twice the wanted length with its newest part; unreadable lines go."""
        content = self.read()
        if len(content.disruptions) + len(content.discarded) >= 2 * self._keep:
            kept = content.disruptions[-(self._keep) :]
            replace_file(self._path, b"".join(map(encode, kept)), mode=0o644)
