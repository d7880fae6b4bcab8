"""`clockgatectl support-bundle`: everything that helps to find a fault from afar, in one file without secrets."""

import argparse
import json
import os
import re
import socket
import sys
import time
from pathlib import Path
from typing import Any

from clockgated.ctl import address, bundle, bundle_entries, node

EXIT_ASKED = 0
EXIT_NOT_WRITTEN = 1
EXIT_UNREACHABLE = 3

_ASKED = "status.json"


def add(commands: Any) -> None:
    """Add the command to the subparsers of clockgatectl."""
    parser = commands.add_parser(
        "support-bundle",
        help="write a file with everything that helps to find a fault, without secrets; works with the daemon dead. "
        "Exit 0 written, 1 not written, 3 written without the daemon's answers",
    )
    parser.add_argument(
        "--output", type=Path, metavar="PATH", help="file or folder; default: a new file in this folder"
    )
    parser.add_argument("--json", action="store_true", help="for scripts: path, and what became of each collector")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", default=node.DEFAULT_CONFIG, help=f"default: {node.DEFAULT_CONFIG}"
    )
    parser.add_argument(
        "--admin-address", metavar="PATH", help=f"the admin socket; default: {address.DEFAULT_ADMIN_SOCKET}"
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Collect, pack, write, print the path; returns the exit code."""
    path = address.chosen(options, os.environ)
    admin = address.admin_address(options.admin_address)
    now_wall_s = int(time.time())  # names a file for people; nothing is timed by it
    name = bundle_name(socket.gethostname(), now_wall_s)
    target = target_path(options.output, name)
    try:
        bundle.check_target(target)
        found = bundle.collect_all(bundle_entries.collectors(path, admin, options.config), _tell)
        bundle.write(target, bundle.pack(found, name, now_wall_s))
    except bundle.BundleError as error:
        _tell(str(error))
        return EXIT_NOT_WRITTEN
    if options.json:
        entries = [{"name": one.name, "problem": one.problem} for one in found]
        print(json.dumps({"path": str(target), "collectors": entries}, indent=2))
    else:
        print(target)
    was_asked = any(one.name == _ASKED and one.problem is None for one in found)
    return EXIT_ASKED if was_asked else EXIT_UNREACHABLE


def bundle_name(host: str, now_wall_s: int) -> str:
    """Name of the folder within the bundle, and of its file without the ending. Any host name makes a plain one."""
    plain = re.sub(r"[^A-Za-z0-9.-]+", "-", host).strip("-.") or "node"
    return f"clockgate-support-{plain[:64]}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now_wall_s))}"


def target_path(output: Path | None, name: str) -> Path:
    """Where the bundle goes: a folder gets a new file of that name."""
    if output is None:
        return Path.cwd() / f"{name}.tar.gz"
    return output / f"{name}.tar.gz" if output.is_dir() else output


def _tell(sentence: str) -> None:
    print(f"clockgatectl: {sentence}", file=sys.stderr, flush=True)
