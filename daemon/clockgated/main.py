"""clockgated: what it was asked on the command line, and the exit code.

0 stopped or done as asked, 1 a thread of the daemon ended, a socket was lost, the address for TCP is not there yet or
not everything could be given back, 2 usage, 78 configuration or sockets.
"""

import argparse
import os
import sys
from pathlib import Path

from clockgated import __version__, config, daemon, host, systemd
from clockgated.config import Config
from clockgated.errors import EXIT_CONFIG, AbsentAddressError, ClockgateError
from clockgated.manage.facts import Facts
from clockgated.manage.handover import Handover
from clockgated.manage.plan import plan_as_json, print_plan
from clockgated.manage.settings import Mode
from clockgated.service.tls import read_certificates
from clockgated.steering.measuring import observed_source
from clockgated.steering.prepare import survey
from clockgated.tuning.journal import JournalError
from clockgated.tuning.survey import check_profile
from clockgated.tuning_room import journal_folder, revert_offline

EXIT_NOT_GIVEN_BACK = 1
EXIT_NOT_YET = 1


def main(argv: list[str] | None = None) -> int:
    """Run the daemon, or check or plan only; returns the exit code. argparse ends the process on wrong usage."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.json and not options.print_plan:
        parser.error("--json belongs to --print-plan")
    try:
        settings = config.load(options.config)
        if options.check:
            return _checked(settings)
        if options.print_plan:
            return _printed(settings, as_json=options.json)
        if options.give_back:
            return _given_back(settings)
        if options.revert_tuning:
            return _reverted(settings)
        systemd.set_up_logging(options.log_level, os.environ)
        return daemon.run(settings, options.config, systemd.notifier(os.environ))
    except ClockgateError as error:
        for line in str(error).splitlines():
            print(f"clockgated: {line}", file=sys.stderr)
        # Other than 78 for systemd, which starts the daemon again: a node may boot faster than its network.
        return EXIT_NOT_YET if isinstance(error, AbsentAddressError) else EXIT_CONFIG


def _checked(settings: Config) -> int:
    if settings.clock.mode is Mode.OBSERVE:
        # A recording has to be there and readable.
        observed_source(settings, Facts(), host.boot_id())
    check_profile(settings.tuning)
    if settings.api.tls is not None:
        read_certificates(settings.api.tls)
    print("ok")
    return 0


def _printed(settings: Config, *, as_json: bool) -> int:
    plan = survey(settings).plan
    print(plan_as_json(plan) if as_json else print_plan(plan), end="")
    return 0


def _given_back(settings: Config) -> int:
    try:
        complaints = Handover(settings.places).give_back()
    except OSError as error:
        complaints = (str(error),)
    for complaint in complaints:
        print(f"clockgated: not given back: {complaint}", file=sys.stderr)
    return EXIT_NOT_GIVEN_BACK if complaints else 0


def _reverted(settings: Config) -> int:
    try:
        left = revert_offline(journal_folder(Path(settings.folders.state)))
    except JournalError as error:
        left = (str(error),)
    for complaint in left:
        print(f"clockgated: not given back: {complaint}", file=sys.stderr)
    return EXIT_NOT_GIVEN_BACK if left else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="clockgated", description="Keeps this node's clock within a stated bound, and serves that bound."
    )
    parser.add_argument("--version", action="version", version=f"clockgated {__version__}")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help=f"default: {config.DEFAULT_FILE} if there is one, else the defaults"
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--check", action="store_true", help="validate the configuration, print ok or all problems")
    only.add_argument(
        "--print-plan",
        action="store_true",
        help="print every file and command that a start would write and run here, and change nothing",
    )
    only.add_argument(
        "--give-back",
        action="store_true",
        help="bring the time daemons that were taken over back as they were; stop clockgated and its own first",
    )
    only.add_argument(
        "--revert-tuning",
        action="store_true",
        help="bring every setting that tuning applied back as it was, without a daemon; exit 1 when one could not be",
    )
    parser.add_argument("--json", action="store_true", help="with --print-plan: for scripts")
    parser.add_argument("--log-level", choices=systemd.LOG_LEVELS, default="info")
    return parser


if __name__ == "__main__":
    sys.exit(main())
