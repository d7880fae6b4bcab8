"""One process that has imported torch, grpc and both programs; forks from it start in a moment.

`python -m support.chaos.zygote` reads requests from standard input, a JSON object a line: `id`, `function`
("module:name"), `arguments` (by name) and `log` (a file for its output). Each is a process of its own that ends with
what the function returns. Answers on standard output: `{"id", "pid"}` at once, `{"exit": pid, "code"}` at its end,
minus a signal's number. Orphans of its processes become its own, so that nobody's end is missed.
"""

import ctypes
import importlib
import json
import os
import select
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from support.chaos.rank import warm_up

# What the processes to be forked are made of.
_WANTED = (
    "clockgate_trainer.launch",
    "clockgated.main",
    "support.chaos.agents",
    "support.chaos.impostor",
    "support.chaos.rank",
)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
# A rank that hangs is ended by its own clock at the latest; a daemon, which lives on, puts that off.
_LIMIT_S = 150
_LOOK_S = 0.005


def main() -> int:
    """Serve until standard input ends; then end every process that is left."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    alive: set[int] = set()
    for name in _WANTED:
        importlib.import_module(name)
    warm_up()
    _tell(ready=True)
    try:
        while True:
            readable, _, _ = select.select([sys.stdin], [], [], _LOOK_S)
            if readable:
                line = sys.stdin.readline()
                if not line:
                    return 0
                request = json.loads(line)
                pid = _fork(request)
                alive.add(pid)
                _tell(id=request["id"], pid=pid)
            _reap(alive)
    finally:
        for pid in alive:
            os.kill(pid, signal.SIGKILL)


def _reap(alive: set[int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        alive.discard(pid)
        _tell(exit=pid, code=os.waitstatus_to_exitcode(status))


def _fork(request: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        # Whatever happens to the zygote, nothing outlives it.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.alarm(_LIMIT_S)
        nothing = os.open(os.devnull, os.O_RDONLY)
        log = os.open(Path(request["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for target, source in ((0, nothing), (1, log), (2, log)):
            os.dup2(source, target)
        module, _, name = request["function"].partition(":")
        code = getattr(importlib.import_module(module), name)(**request["arguments"])
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _tell(**answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
