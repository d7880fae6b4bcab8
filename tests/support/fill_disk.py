"""What the disk-full test runs in a mount namespace of its own: `python -m support.fill_disk FOLDER`.

FOLDER is a small file system. Checkpoint 1 is saved, then a save of checkpoint 2 is tried again and again while less
and less of the disk is taken by something else, at last with a read-only disk. Prints what came of it as JSON.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from clockgate_trainer.checkpoint.resume import find_resume
from clockgate_trainer.checkpoint.verify import verify
from support.checkpoints import make_store, save

_PAGE_BYTES = 4096
_SIZE = 2_000


def main(folder: Path) -> None:
    """See the module."""
    run = folder / "run"
    first = save(make_store(run), 1, 1.0, size=_SIZE)
    ballast = folder / "ballast"
    free = os.statvfs(folder).f_bavail
    attempts = []
    for left in range(free + 1):
        with ballast.open("wb") as file:
            file.truncate(0)
            file.write(b"x" * (free - left) * _PAGE_BYTES)
        result = save(make_store(run), 2, 2.0, size=_SIZE)
        found = find_resume(run, "auto")
        attempts.append(
            {
                "saved": result.saved,
                "reason": result.reason,
                "first_verified": verify(run / "checkpoint-1") == (),
                "resumes_from": None if found is None else found.step,
                "entries": sorted(path.name for path in run.iterdir()),
            }
        )
        if result.saved:
            break
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    read_only = save(make_store(run), 3, 3.0, size=_SIZE)
    print(
        json.dumps(
            {
                "first": first.saved,
                "attempts": attempts,
                "read_only": {"saved": read_only.saved, "reason": read_only.reason},
                "verified_at_the_end": verify(run / "checkpoint-2") == (),
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
