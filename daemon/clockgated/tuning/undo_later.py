"""The program of the guard: wait, and give one apply back unless the journal says that it is confirmed or over.

Exit codes: 0 nothing to do or given back, 1 not everything could be given back, 2 usage.
"""

import argparse
import logging
import sys
import time
from pathlib import Path

from clockgated.tuning.hand import Hand
from clockgated.tuning.host_hand import HostHand
from clockgated.tuning.host_stamps import HostStamps
from clockgated.tuning.journal import JournalError, Stage
from clockgated.tuning.journal_file import JournalFile
from clockgated.tuning.outcome import OutcomeCode
from clockgated.tuning.roots import Roots
from clockgated.tuning.stamps import Stamps
from clockgated.tuning.transaction import give_back

_TRIES, _RETRY_S = 5, 1.0
_LOG = logging.getLogger("clockgate-tuning-undo")


def main(argv: list[str] | None = None) -> int:
    """Run the guard; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="of the journal")
    parser.add_argument("--apply", type=int, required=True, help="id of the apply")
    parser.add_argument("--boot-id", required=True, help="as the daemon sees it: a container's units may see another")
    parser.add_argument("--after", type=float, default=0.0, help="seconds to wait first")
    parser.add_argument("--proc", type=Path, default=Roots().proc)
    parser.add_argument("--sys", type=Path, default=Roots().sys)
    options = parser.parse_args(argv)
    logging.basicConfig(format="%(levelname)s %(message)s")
    time.sleep(max(0.0, options.after))
    roots = Roots(options.proc, options.sys)
    journal = JournalFile(options.folder, options.boot_id)
    try:
        return 0 if undo(journal, HostHand(roots), HostStamps(roots.sys), options.apply, options.boot_id) else 1
    except JournalError as error:
        _LOG.error("%s", error)
        return 1


def undo(journal: JournalFile, hand: Hand, stamps: Stamps, apply_id: int, boot_id: str) -> bool:
    """Give the apply back if it is neither confirmed nor over; whether nothing is left to do. Raises JournalError."""
    for attempt in range(_TRIES):
        found = next((one for one in journal.read() if one.apply_id == apply_id), None)
        if found is None or found.boot_id != boot_id or found.stage not in (Stage.OPEN, Stage.UNDOING):
            return True
        outcomes = give_back(journal, hand, stamps, apply_id, found.detail or "reachability was not proven in time")
        for one in outcomes:
            _LOG.warning('%s: %s: "%s" %s', one.knob.subject, one.code, one.actual, one.detail)
        if all(one.code is not OutcomeCode.FAILED for one in outcomes):
            return True
        # A driver that is busy resetting its link refuses for a moment.
        time.sleep(_RETRY_S if attempt + 1 < _TRIES else 0)
    return False


if __name__ == "__main__":
    sys.exit(main())
