"""`clockgate-train`: trains; `launch` starts ranks, `verify` checks checkpoints."""

import logging
import os
import sys
from collections.abc import Sequence

from clockgate_trainer import __version__
from clockgate_trainer.errors import ExitCode, TrainerError
from clockgate_trainer.flags.help import help_text
from clockgate_trainer.flags.parse import parse


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line (sys.argv when None) and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words == ["--version"]:
        print(f"clockgate-train {__version__}")
        return ExitCode.DONE
    if words == ["help"] or (words[:1] not in (["launch"], ["verify"]) and {"-h", "--help"} & set(words)):
        print(help_text())
        return ExitCode.DONE
    logging.basicConfig(format="clockgate-train: %(message)s", level=logging.INFO)
    # Each of these takes seconds to import torch and its kin, which help, version and flag errors do without.
    if words[:1] == ["launch"]:
        from clockgate_trainer import launch  # noqa: PLC0415

        return launch.main(words[1:])
    if words[:1] == ["verify"]:
        from clockgate_trainer.checkpoint import verify_command  # noqa: PLC0415

        return verify_command.main(words[1:])
    try:
        settings = parse(words)
    except TrainerError as error:
        print(f"clockgate-train: {error}", file=sys.stderr)
        return error.exit_code
    from clockgate_trainer.train import run  # noqa: PLC0415

    return run.main(settings, os.environ)


if __name__ == "__main__":
    sys.exit(main())
