"""What the launcher's tests run in each rank: `python -m support.rank_program FOLDER SCRIPT`.

SCRIPT says for each rank, in order, what to do, parts separated by commas: a number exits with it; `kill` ends the
rank by SIGKILL; `signals` writes the file `ready-RANK`, waits for a signal, notes its name in `got-RANK`, and ends
with 75 after SIGTERM; `slow` does the same but takes signals only after a second; `once` is `kill` on the first attempt
and 0 later; `lost` ends with 79 after a second and does not mind SIGTERM.
"""

import os
import signal
import sys
import time
from pathlib import Path

_HANDLED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)


def main(folder: Path, script: str) -> int:
    rank = int(os.environ["RANK"])
    parts = script.split(",")
    part = parts[rank]
    if part == "lost":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (folder / f"omp-{rank}").write_text(os.environ["OMP_NUM_THREADS"], encoding="utf-8")
    _meet(folder, len(parts))
    mark = folder / f"once-{rank}"
    if part == "kill" or (part == "once" and not mark.exists()):
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if part in ("signals", "slow"):
        return _note_signals(folder, rank, slow=part == "slow")
    if part == "lost":
        time.sleep(1)  # a rank that lost its peer takes a moment to name it
        return 79
    return 0 if part == "once" else int(part)


def _meet(folder: Path, ranks: int) -> None:
    """Wait until every rank is up: the agent ends what is still starting when the first rank ends."""
    until = time.monotonic() + 30
    while not all((folder / f"omp-{rank}").exists() for rank in range(ranks)) and time.monotonic() < until:
        time.sleep(0.02)


def _note_signals(folder: Path, rank: int, *, slow: bool) -> int:
    got: list[str] = []
    if slow:
        (folder / f"ready-{rank}").touch()
        time.sleep(1)
    for number in _HANDLED:
        signal.signal(number, lambda number, _: got.append(signal.Signals(number).name))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
    (folder / f"ready-{rank}").touch()
    until = time.monotonic() + 30
    while "SIGTERM" not in got and time.monotonic() < until:
        time.sleep(0.02)
        (folder / f"got-{rank}").write_text(" ".join(got), encoding="utf-8")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return 75 if "SIGTERM" in got else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
