"""A stand-in for pmc at the process edge: a shell script that answers from files, and a socket for it to ask."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clockgated.sources.pmc import Pmc, PmcSettings
from support.ptp_text import a_round

# Answers each command with the file named like the data set; as pmc does, it says nothing when there is none.
ANSWERS = 'while read -r verb name; do cat "$HERE/$name" 2>/dev/null; done'


class FakePmc:
    """The script at `program`; it notes each start in `starts` and where its process is."""

    def __init__(self, folder: Path, script: str = ANSWERS):
        self.folder = folder
        self.program = folder / "pmc"
        self.server_socket, self.client_socket = folder / "ptp4l", folder / "client"
        self._starts = folder / "starts"
        self.program.write_text(f"#!/bin/sh\nHERE='{folder}'\necho $$ >>\"$HERE/starts\"\n{script}\n")
        self.program.chmod(0o755)

    def says(self, raw: bytes | None) -> None:
        """Answer with the data sets of this round from now on; None: with silence."""
        for data_set in ("CURRENT_DATA_SET", "PARENT_DATA_SET", "TIME_PROPERTIES_DATA_SET", "PORT_DATA_SET"):
            self.says_of(data_set, raw)
        self.says_of("TIME_STATUS_NP", raw)

    def says_of(self, data_set: str, raw: bytes | None) -> None:
        """As `says`, of one data set."""
        path = self.folder / data_set
        if raw is None:
            path.unlink(missing_ok=True)
            return
        chunks = raw.split(b"sending: GET ")
        # Replaced in one move: the script may be reading.
        draft = path.with_suffix(".draft")
        draft.write_bytes(b"".join(b"sending: GET " + chunk for chunk in chunks if chunk.startswith(data_set.encode())))
        draft.replace(path)

    @property
    def pids(self) -> list[int]:
        """Every process of it so far."""
        return [int(pid) for pid in self._starts.read_text().split()] if self._starts.exists() else []

    def is_gone(self, pid: int) -> bool:
        """Whether that process has ended and was reaped."""
        return not Path("/proc", str(pid)).exists()


@contextmanager
def fake_pmc(folder: Path, script: str = ANSWERS, /, **settings: int) -> Iterator[tuple[FakePmc, Pmc]]:
    """A healthy pmc beside a socket that exists, and the adapter that asks it."""
    fake = FakePmc(folder, script)
    fake.says(a_round())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(fake.server_socket))
        pmc = Pmc(PmcSettings(str(fake.program), fake.server_socket, fake.client_socket, **settings))
        try:
            yield fake, pmc
        finally:
            pmc.close()
