"""clockgatectl's command line. Exit codes: 0 yes, 1 no, 2 usage, 3 daemon unreachable."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable

import grpc
from clockgate.v1 import tuning_pb2

from clockgated import __version__
from clockgated.ctl import (
    address,
    again,
    ask,
    bundle_command,
    doctor_command,
    drill,
    epochs,
    leases,
    node_commands,
    status,
    tune,
    tune_changes,
    wait_command,
)
from clockgated.errors import EXIT_USAGE

EXIT_YES = 0
EXIT_NO = 1
EXIT_UNREACHABLE = 3

_WATCH_INTERVAL_S = 1.0
_CLEAR_SCREEN = "\x1b[H\x1b[J"


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code. argparse ends the process by itself for --help and wrong usage."""
    words = drill.protect_minus(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(words)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except (address.AddressError, drill.DrillRefusedError, leases.NoAdminError, tune.TuneRefusedError) as error:
        return _fail(error, EXIT_USAGE)
    except node_commands.NodeUnknownError as error:
        return _fail(error, EXIT_USAGE)
    except tune_changes.TuneFailedError as error:
        return _fail(error, error.code)
    except leases.NoSuchLeaseError as error:
        return _fail(error, EXIT_NO)
    except address.UnreachableError as error:
        return _fail(error, EXIT_UNREACHABLE)
    except BrokenPipeError:
        # The reader (head, less) has seen enough; stdout must not be flushed again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_NO
    except KeyboardInterrupt:
        return EXIT_NO


def _fail(error: Exception, code: int) -> int:
    print(f"clockgatectl: {error}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="clockgatectl", description="Ask this node's clockgated.")
    parser.add_argument("--version", action="version", version=f"clockgatectl {__version__}")
    address.add_options(parser)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    status_parser = commands.add_parser("status", help="how good the clock is; exit 0 when its bound is usable, else 1")
    status_parser.add_argument("--json", action="store_true", help="for scripts: stable keys, null for what is absent")
    status_parser.add_argument("--watch", action="store_true", help="again every second, until interrupted")
    status_parser.set_defaults(command=_status)
    wait_command.add(commands)
    epochs_parser = commands.add_parser("epochs", help="when continuity of the clock broke, and why; the newest last")
    epochs_parser.add_argument("--json", action="store_true", help="for scripts: stable keys, null for what is absent")
    epochs_parser.set_defaults(command=_epochs)
    node_commands.add(commands)
    doctor_command.add(commands)
    _add_leases(commands.add_parser("leases", help="the jobs that forbid a step of the clock (root)"))
    _add_lease(commands.add_parser("lease", help="act on one lease (root)"))
    _add_tune(commands.add_parser("tune", help="settings of network and host: what would be set, and why"))
    _add_drill(commands.add_parser("drill", help="put a fault between time source and reading, on purpose (root)"))
    bundle_command.add(commands)
    return parser


def _add_admin_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--admin-address", metavar="PATH", help=f"the admin socket; default: {address.DEFAULT_ADMIN_SOCKET}"
    )


def _add_leases(parser: argparse.ArgumentParser) -> None:
    _add_admin_address(parser)
    parser.add_argument("--json", action="store_true", help="for scripts: stable keys")
    parser.set_defaults(command=_leases)


def _add_lease(parser: argparse.ArgumentParser) -> None:
    _add_admin_address(parser)
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    breaking = actions.add_parser("break", help="end a lease against its job's will; exit 1 when it is not open")
    breaking.add_argument("lease_id", metavar="ID", help="as `clockgatectl leases` shows it")
    breaking.set_defaults(command=_break_lease)


def _add_drill(parser: argparse.ArgumentParser) -> None:
    _add_admin_address(parser)
    parser.set_defaults(command=_drill, size=0, duration=0)
    kinds = parser.add_subparsers(title="faults", required=True, metavar="FAULT", dest="kind")
    freeze = kinds.add_parser("freeze", help="act as if the source had stopped answering")
    offset = kinds.add_parser("offset", help="act as if the clock were off: drill offset 200ms --for 3s")
    step = kinds.add_parser("step", help="act as if the clock had been stepped once: drill step 1s")
    kinds.add_parser("clear", help="end the active fault")
    for sized in (offset, step):
        sized.add_argument("size", metavar="SIZE", type=_value, help="with unit; positive: the clock is ahead")
    for lasting in (freeze, offset):
        lasting.add_argument("--for", dest="duration", metavar="TIME", type=_value, required=True, help="with unit: 3s")


def _add_tune(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    planning = actions.add_parser(
        "plan",
        help="look at the node and show what would be set; changes nothing. Exit 0 nothing to do, 1 changes wanted, "
        "4 something cannot be had here, 5 somebody else owns it, 6 error",
    )
    planning.add_argument("--json", action="store_true", help="for scripts: the names of the API, and exit_code")
    planning.add_argument("--profile", help="auto, none, tcp, roce, ib, wan or one of the site's; default: configured")
    planning.add_argument("--rtt-ms", type=float, metavar="MS", help="round-trip time to the job's peers")
    planning.set_defaults(command=_tune_plan)
    applying = actions.add_parser(
        "apply",
        help="carry out a plan (root). Exit 0 applied, 4 something is gone, 5 the node has changed or a job forbids "
        "it, 6 it failed and everything was given back",
    )
    applying.add_argument("plan_hash", metavar="HASH", help="as `clockgatectl tune plan` shows it")
    applying.set_defaults(command=_tune_apply)
    verifying = actions.add_parser(
        "verify",
        help="compare what was applied with what is. Exit 0 clean, 1 drift, 4 something is gone, 5 left to another "
        "writer, 6 error",
    )
    verifying.set_defaults(command=_tune_verify)
    reverting = actions.add_parser(
        "revert",
        help="give back what was found before (root). Exit 0 all of it, 5 something was left to others or a job "
        "forbids it, 6 error",
    )
    reverting.set_defaults(command=_tune_revert)
    for changing in (applying, reverting):
        changing.add_argument("--ignore-leases", action="store_true", help="reset links although jobs hold leases")
        _add_admin_address(changing)
    for one in (applying, verifying, reverting):
        one.add_argument("--json", action="store_true", help="for scripts: the names of the API, and exit_code")


def _value(text: str) -> int:
    try:
        return drill.duration_ns(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _drill(options: argparse.Namespace) -> int:
    path = address.admin_address(options.admin_address)
    with address.connect(path) as channel:
        try:
            print(drill.run(channel, drill.request(options.kind, options.size, options.duration)))
        except grpc.RpcError as error:
            raise address.unreachable(path, error) from None
    return EXIT_YES


def _tune_plan(options: argparse.Namespace) -> int:
    path = address.chosen(options, os.environ)
    with address.connect(path) as channel:
        try:
            plan = tune.read_plan(channel, options.profile, options.rtt_ms)
        except grpc.RpcError as error:
            raise address.unreachable(path, error) from None
    in_colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    print(json.dumps(tune.as_json(plan), indent=2) if options.json else tune.render(plan, in_colour=in_colour))
    return tune.plan_exit(plan)


def _tune_apply(options: argparse.Namespace) -> int:
    path = address.admin_address(options.admin_address)
    with address.connect(path) as channel:
        try:
            outcomes = tune_changes.apply(
                channel, options.plan_hash, ignore_leases=options.ignore_leases, tell=_tell_progress
            )
        except grpc.RpcError as error:
            raise address.unreachable(path, error) from None
    return _tell_outcomes(options, outcomes, tune_changes.apply_exit(outcomes), "nothing to do")


def _tell_progress(sentence: str) -> None:
    print(f"clockgatectl: {sentence}", file=sys.stderr)


def _tune_revert(options: argparse.Namespace) -> int:
    path = address.admin_address(options.admin_address)
    with address.connect(path) as channel:
        try:
            outcomes = tune_changes.revert(channel, ignore_leases=options.ignore_leases)
        except grpc.RpcError as error:
            raise address.unreachable(path, error) from None
    return _tell_outcomes(options, outcomes, tune_changes.revert_exit(outcomes), "nothing is applied")


def _tell_outcomes(
    options: argparse.Namespace, outcomes: list[tuning_pb2.TuningOutcome], code: int, nothing: str
) -> int:
    if options.json:
        print(json.dumps(tune_changes.outcomes_as_json(outcomes, code), indent=2))
    else:
        print(tune_changes.render_outcomes(outcomes, nothing))
    return code


def _tune_verify(options: argparse.Namespace) -> int:
    path = address.chosen(options, os.environ)
    with address.connect(path) as channel:
        try:
            verdicts = tune_changes.verify(channel)
        except grpc.RpcError as error:
            raise address.unreachable(path, error) from None
    if options.json:
        print(json.dumps(tune_changes.verdicts_as_json(verdicts), indent=2))
    else:
        print(tune_changes.render_verdicts(verdicts))
    return tune_changes.verify_exit(verdicts)


def _epochs(options: argparse.Namespace) -> int:
    path = address.chosen(options, os.environ)
    with address.connect(path) as channel:
        found = ask.newest_epochs(channel, path)
    print(json.dumps(epochs.as_json(found), indent=2) if options.json else epochs.render(found))
    return EXIT_YES


def _leases(options: argparse.Namespace) -> int:
    path = address.admin_address(options.admin_address)
    with address.connect(path) as channel:
        try:
            found = leases.read(channel)
        except grpc.RpcError as error:
            raise address.unreachable(path, error) from None
    now_boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    shown = leases.as_json(found, now_boot_ns)
    print(json.dumps(shown, indent=2) if options.json else leases.render(found, now_boot_ns))
    return EXIT_YES


def _break_lease(options: argparse.Namespace) -> int:
    path = address.admin_address(options.admin_address)
    with address.connect(path) as channel:
        try:
            print(leases.break_lease(channel, options.lease_id, time.clock_gettime_ns(time.CLOCK_BOOTTIME)))
        except grpc.RpcError as error:
            raise address.unreachable(path, error) from None
    return EXIT_YES


def _status(options: argparse.Namespace) -> int:
    path = address.chosen(options, os.environ)
    with address.connect(path) as channel:
        if not options.watch:
            return _show_once(channel, path, options)
        # Polling rather than holding one of the daemon's few streams.
        return again.again(lambda: _show_once(channel, path, options), _WATCH_INTERVAL_S)


def _show_once(channel: grpc.Channel, path: address.Address, options: argparse.Namespace) -> int:
    answer, now_boot_ns = ask.newest_answer(channel, path)
    reading, details = answer.reading, answer.details
    is_terminal = sys.stdout.isatty()
    if options.json:
        shown = status.as_json(reading, now_boot_ns, details)
        print(json.dumps(shown, indent=None if options.watch else 2), flush=True)
    else:
        before = _CLEAR_SCREEN if options.watch and is_terminal else ""
        after = "\n" if options.watch and not is_terminal else ""
        in_colour = is_terminal and not os.environ.get("NO_COLOR")
        print(before + status.render(reading, now_boot_ns, details, in_colour=in_colour) + after, flush=True)
    return EXIT_YES if status.is_usable(reading, now_boot_ns) else EXIT_NO


if __name__ == "__main__":
    sys.exit(main())
