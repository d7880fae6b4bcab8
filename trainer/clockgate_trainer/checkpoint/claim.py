"""One run at a time in a run folder: two would remove each other's half-written checkpoints."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clockgate_trainer.errors import ConfigError

LOCK_FILE = ".lock"


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold the run folder, which is made when it is not there. Raises ConfigError when somebody else has it.

    The lock ends with the process at the latest, however that ends, so a killed run leaves nothing to clean up.
    """
    name = folder / LOCK_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as err:
        raise ConfigError(f"{name} cannot be made ({err.strerror}): give another --output_dir") from err
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"--output_dir {folder} is in use by another run ({name} is locked): wait for it or stop it, or give "
                "another --output_dir"
            ) from None
        except OSError as err:
            raise ConfigError(f"{name} cannot be locked ({err.strerror}): give another --output_dir") from err
        yield
    finally:
        os.close(handle)
