"""One rank of the small model for launchers to start: `python -m support.small_rank FLAGS`, with the trainer's flags.

Everything but model and data is the trainer's own, and it starts in a moment.
"""

import os
import sys

from clockgate_trainer.errors import UsageError
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.train import run
from support.chaos.small import PARTS


def main(argv: list[str]) -> int:
    """Train; returns the rank's exit code."""
    try:
        return run.main(parse(argv), os.environ, PARTS)
    except UsageError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
