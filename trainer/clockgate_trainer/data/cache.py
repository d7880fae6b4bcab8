"""The token cache: a folder of stores, each named by everything that its tokens follow from.

One process makes a store under a lock while others wait for it, so ranks that start together tokenize once. A store
that is damaged is made again.
"""

import errno
import fcntl
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from clockgate_trainer.data.record import Fault
from clockgate_trainer.data.store import DamagedError, Store, open_store, write_store
from clockgate_trainer.data.tokens import Coded
from clockgate_trainer.errors import ConfigError

_POLL_S = 0.1
_PATIENCE_S = 10.0
_logger = logging.getLogger(__name__)


def content_key(path: Path) -> str:
    """The SHA-256 of a file. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def store_name(facts: Mapping[str, object]) -> str:
    """The name of the store that follows from `facts`."""
    return hashlib.sha256(json.dumps(dict(facts), sort_keys=True, default=str).encode()).hexdigest()[:32]


def cached(folder: Path, name: str, make: Callable[[], Iterable[Coded | Fault]], *, subject: str) -> Store:
    """The store `name` in `folder`, made by `make` when it is missing or damaged.

    Raises BadDataError, which leaves no store, and ConfigError when the folder cannot be written.
    """
    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder / f"{name}.lock", subject):
            if path.exists():
                try:
                    return open_store(path)
                except (DamagedError, OSError) as err:
                    _logger.warning("the token cache %s is damaged (%s): it is made again", path, err)
                    shutil.rmtree(path)
            write_store(path, _counted(make(), subject))
            return open_store(path)
    except (OSError, DamagedError) as err:
        reason = err.strerror if isinstance(err, OSError) and err.strerror else str(err)
        raise ConfigError(
            f"the token cache {folder} cannot be used for {subject}: {reason}. Make room there, or give --token_cache "
            "a folder on a local disk"
        ) from err


@contextmanager
def _alone(lock: Path, subject: str) -> Iterator[None]:
    """Hold a lock that ends with the process at the latest; wait for another that has it. Raises OSError."""
    handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    told_at = time.monotonic() + _PATIENCE_S
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as err:
                if err.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
            if time.monotonic() >= told_at:
                _logger.info("waiting for another process that tokenizes %s", subject)
                told_at = time.monotonic() + _PATIENCE_S * 6
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(handle)


def _counted(rows: Iterable[Coded | Fault], subject: str) -> Iterator[Coded | Fault]:
    """The same rows; says how far they are when it takes long."""
    told_at = time.monotonic() + _PATIENCE_S
    for number, row in enumerate(rows, start=1):
        if time.monotonic() >= told_at:
            _logger.info("tokenizing %s: %s rows so far", subject, f"{number:,}")
            told_at = time.monotonic() + _PATIENCE_S
        yield row
