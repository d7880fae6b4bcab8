"""Lines for a person, on standard error."""

import os
import sys
from contextlib import suppress
from typing import TextIO


def tell(text: str) -> None:
    """Print `text` as a line. Never raises for the stream's sake.

    Standard error may be a file on a full disk, a pipe that nobody reads, or a terminal that is gone: none of them may
    end a rank, or keep a launcher from handing on a signal. What is lost is in the logs of the run folder.
    """
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def let_go_of_stderr() -> None:
    """Drop what standard error still does not take: the interpreter would try again at its end, and exit with 120."""
    stream = sys.stderr
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        to_nowhere(stream)


def to_nowhere(stream: TextIO) -> None:
    """Have the file behind `stream` take everything and keep nothing."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
