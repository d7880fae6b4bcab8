"""`clockgate-train`: trains; `launch` starts ranks, `verify` checks checkpoints, `generate` and `merge` use them."""

import logging
import os
import select
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import TextIO

from clockgate_trainer import __version__
from clockgate_trainer.early import hold_back
from clockgate_trainer.errors import ExitCode, TrainerError
from clockgate_trainer.flags.config_file import text_of
from clockgate_trainer.flags.help import help_text
from clockgate_trainer.flags.parse import read_command_line
from clockgate_trainer.tell import let_go_of_stderr, tell, to_nowhere

# Each of these takes seconds to import torch and its kin, which help, version and flag errors do without.
_COMMANDS = {
    "evaluate": "clockgate_trainer.evaluate",
    "generate": "clockgate_trainer.generate",
    "launch": "clockgate_trainer.launch",
    "lint": "clockgate_trainer.lint.command",
    "merge": "clockgate_trainer.export.merge_command",
    "plan": "clockgate_trainer.planner.command",
    "repair": "clockgate_trainer.checkpoint.repair_command",
    "verify": "clockgate_trainer.checkpoint.verify_command",
}
# What a shell shows for a program that SIGPIPE ended; 1 would be a finding of verify, lint or plan.
_NOBODY_READS = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line (sys.argv when None) and return its exit code: 141 when nobody reads standard output."""
    if isinstance(sys.stdout, TextIOWrapper):
        # A file's name may hold what the terminal's encoding does not: no report may end in a traceback for that.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _main(list(sys.argv[1:] if argv is None else argv))
        # Not left to the interpreter's end, which would tell of a closed pipe in a traceback.
        print(end="", flush=True)
    except BrokenPipeError:
        if not _has_no_reader(sys.stdout):
            raise
        # What is still in the buffer is written at the interpreter's end, and must find somebody who takes it.
        to_nowhere(sys.stdout)
        code = _NOBODY_READS
    let_go_of_stderr()
    return code


def _has_no_reader(stream: TextIO) -> bool:
    """Whether `stream` is a pipe whose other end is closed: other pipes break too, and those are no small matter."""
    poll = select.poll()
    poll.register(stream, 0)
    return any(state & select.POLLERR for _, state in poll.poll(0))


def _main(words: list[str]) -> int:
    if words == ["--version"]:
        print(f"clockgate-train {__version__}")
        return ExitCode.DONE
    command = _COMMANDS.get(words[0]) if words else None
    if words == ["help"] or (command is None and {"-h", "--help"} & set(words)):
        print(help_text())
        return ExitCode.DONE
    logging.basicConfig(format="clockgate-train: %(message)s", level=logging.INFO)
    if words[:1] == ["launch"]:
        hold_back()
    if command is not None:
        code: int = import_module(command).main(words[1:])
        return code
    try:
        line = read_command_line(words)
    except TrainerError as error:
        tell(f"clockgate-train: {error}")
        return error.exit_code
    if line.print_config:
        print(text_of(line.settings), end="")
        return ExitCode.DONE
    if os.environ.get("RANK", "0") == "0":
        for notice in line.notices:
            logging.getLogger(__name__).info("%s", notice)
    from clockgate_trainer.train import run  # noqa: PLC0415
    from clockgate_trainer.train.qlora import QLORA  # noqa: PLC0415

    return run.main(line.settings, os.environ, QLORA)


if __name__ == "__main__":
    sys.exit(main())
