"""`clockgatectl doctor`: ask the daemon, look at the node, say what is wrong."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import grpc

from clockgated.ctl import address, ask, doctor, leases, node

EXIT_CLEAN = 0
EXIT_FAULTS = 1
EXIT_UNREACHABLE = 3


def add(commands: Any) -> None:
    """Add the command to the subparsers of clockgatectl."""
    parser = commands.add_parser(
        "doctor",
        help="check daemon and node, and say what to do. Exit 0 no fault, 1 faults, 3 the daemon is unreachable",
    )
    parser.add_argument("--json", action="store_true", help="for scripts: stable keys")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", default=node.DEFAULT_CONFIG, help=f"default: {node.DEFAULT_CONFIG}"
    )
    parser.add_argument(
        "--admin-address", metavar="PATH", help=f"the admin socket; default: {address.DEFAULT_ADMIN_SOCKET}"
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Print every finding; returns the exit code."""
    path = address.chosen(options, os.environ)
    admin = address.admin_address(options.admin_address)
    if sys.stderr.isatty():
        print("clockgatectl: looking at the daemon and this node; a few seconds", file=sys.stderr)
    answers = ask_daemon(path, admin)
    findings = doctor.examine(answers, node.look(options.config))
    code = exit_code(answers, findings)
    if options.json:
        print(json.dumps(doctor.as_json(findings, code), indent=2))
    else:
        print(doctor.render(findings, in_colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR")))
    return code


def exit_code(answers: doctor.Answers, findings: tuple[doctor.Finding, ...]) -> int:
    """Unreachable wins over faults: without the daemon most was not looked at."""
    if answers.unreachable is not None:
        return EXIT_UNREACHABLE
    return EXIT_FAULTS if doctor.has_fault(findings) else EXIT_CLEAN


def ask_daemon(path: address.Address, admin: address.Address) -> doctor.Answers:
    """Reading and leases; never raises for a daemon that does not answer."""
    with address.connect(path) as channel:
        try:
            reading, now_boot_ns = ask.newest_reading(channel, path)
        except address.UnreachableError as error:
            return doctor.Answers(None, 0, str(error))
    with address.connect(admin) as channel:
        try:
            return doctor.Answers(reading, now_boot_ns, leases=leases.read(channel))
        except grpc.RpcError as error:
            return doctor.Answers(reading, now_boot_ns, leases_problem=str(address.unreachable(admin, error)))
        except leases.NoAdminError as error:
            return doctor.Answers(reading, now_boot_ns, leases_problem=str(error))
