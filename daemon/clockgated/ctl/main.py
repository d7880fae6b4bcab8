"""clockgatectl's command line. Exit codes: 0 yes, 1 no, 2 usage, 3 daemon unreachable."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import grpc
from clockgate.v1 import clock_pb2, clock_pb2_grpc

from clockgated import __version__
from clockgated.ctl import address, drill, epochs, leases, status
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
    except (address.AddressError, drill.DrillRefusedError, leases.NoAdminError) as error:
        return _fail(error, EXIT_USAGE)
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
    parser.add_argument(
        "--address",
        metavar="PATH",
        help=f"the daemon's socket; default: ${address.ENVIRONMENT_VARIABLE}, else {address.DEFAULT_SOCKET}",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    status_parser = commands.add_parser("status", help="how good the clock is; exit 0 when its bound is usable, else 1")
    status_parser.add_argument("--json", action="store_true", help="for scripts: stable keys, null for what is absent")
    status_parser.add_argument("--watch", action="store_true", help="again every second, until interrupted")
    status_parser.set_defaults(command=_status)
    epochs_parser = commands.add_parser("epochs", help="when continuity of the clock broke, and why; the newest last")
    epochs_parser.add_argument("--json", action="store_true", help="for scripts: stable keys, null for what is absent")
    epochs_parser.set_defaults(command=_epochs)
    _add_leases(commands.add_parser("leases", help="the jobs that forbid a step of the clock (root)"))
    _add_lease(commands.add_parser("lease", help="act on one lease (root)"))
    _add_drill(commands.add_parser("drill", help="put a fault between time source and reading, on purpose (root)"))
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


def _epochs(options: argparse.Namespace) -> int:
    path = address.read_address(options.address, os.environ)
    with address.connect(path) as channel:
        try:
            answer = clock_pb2_grpc.ClockStub(channel).ListEpochs(
                clock_pb2.ListEpochsRequest(), timeout=address.DEADLINE_S
            )
        except grpc.RpcError as error:
            raise address.unreachable(path, error) from None
    print(json.dumps(epochs.as_json(answer.epochs), indent=2) if options.json else epochs.render(answer.epochs))
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
    path = address.read_address(options.address, os.environ)
    with address.connect(path) as channel:
        if not options.watch:
            return _show_once(channel, path, options)
        return _watch(channel, path, options)


def _watch(channel: grpc.Channel, path: Path, options: argparse.Namespace) -> int:
    """Poll rather than hold one of the daemon's few streams; a daemon that is gone is waited for."""
    code = EXIT_UNREACHABLE
    try:
        while True:
            try:
                code = _show_once(channel, path, options)
            except address.UnreachableError as error:
                code = _fail(error, EXIT_UNREACHABLE)
            time.sleep(_WATCH_INTERVAL_S)
    except KeyboardInterrupt:
        return code


def _show_once(channel: grpc.Channel, path: Path, options: argparse.Namespace) -> int:
    reading, now_boot_ns = _read(channel, path)
    is_terminal = sys.stdout.isatty()
    if options.json:
        print(json.dumps(status.as_json(reading, now_boot_ns), indent=None if options.watch else 2), flush=True)
    else:
        before = _CLEAR_SCREEN if options.watch and is_terminal else ""
        after = "\n" if options.watch and not is_terminal else ""
        in_colour = is_terminal and not os.environ.get("NO_COLOR")
        print(before + status.render(reading, now_boot_ns, in_colour=in_colour) + after, flush=True)
    return EXIT_YES if status.is_usable(reading, now_boot_ns) else EXIT_NO


def _read(channel: grpc.Channel, path: Path) -> tuple[clock_pb2.Reading, int]:
    """The newest reading and, from its own age and ours, the time now in its CLOCK_BOOTTIME; rather late than early."""
    asked_mono_ns = time.monotonic_ns()
    try:
        response = clock_pb2_grpc.ClockStub(channel).GetReading(
            clock_pb2.GetReadingRequest(), timeout=address.DEADLINE_S
        )
    except grpc.RpcError as error:
        raise address.unreachable(path, error) from None
    reading = response.reading
    return reading, reading.as_of_boot_ns + reading.age_ns + time.monotonic_ns() - asked_mono_ns


if __name__ == "__main__":
    sys.exit(main())
