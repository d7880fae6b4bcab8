"""A process that supervises one child and can kill itself, as kill -9 would, at the worst instants.

Arguments: the spec as JSON, folder, and where to die: "before fork", "after fork" (the child runs,
no record of it is written), "after record", or nowhere.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from clockgated import host
from clockgated.supervise import children, ledger
from clockgated.supervise.base import ChildSpec
from support.programs import BOOT, FAST


def _die(*_arguments: Any, **_options: Any) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL came back")


class _DyingLedger(ledger.Ledger):
    """Dies where the record would have been written, or right after."""

    die_first = False

    def record(self, record: ledger.Record) -> None:
        """See the class."""
        if not self.die_first:
            super().record(record)
        _die()


def _spec(fields: dict[str, Any]) -> ChildSpec:
    pairs = tuple((key, value) for key, value in fields["environment"])
    tuples = {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
    return ChildSpec(**{**fields, **tuples, "environment": pairs})


def main() -> None:
    """Supervise for at most a minute."""
    fields, folder, die_at = sys.argv[1:]
    if die_at == "before fork":
        setattr(subprocess, "Popen", _die)  # noqa: B010
    elif die_at:
        _DyingLedger.die_first = die_at == "after fork"
        setattr(children, "Ledger", _DyingLedger)  # noqa: B010
    backend = children.ChildrenBackend(Path(folder), BOOT, FAST, lambda _name, _line: None)
    backend.start(_spec(json.loads(fields)), may_step=True)
    for _ in range(6000):
        backend.poll(host.mono_ns())
        time.sleep(0.01)


if __name__ == "__main__":
    main()
