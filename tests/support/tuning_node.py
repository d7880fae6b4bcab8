"""A real clockgated in a network namespace, and everything there that tuning must give back as it was."""

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clockgated.ctl.main import main
from support.daemon import Clockgated, clockgated, environment, toml
from support.veth import Namespace

_SNAPSHOT = """
import json, os, subprocess, sys
from clockgated.tuning.ethtool import Ethtool
from clockgated.tuning.ethtool_messages import Command
keys = {}
for top in ("/proc/sys/net", "/proc/sys/vm"):
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            if os.stat(path).st_mode & 0o200:
                try:
                    keys[path] = open(path).read()
                except OSError as error:
                    keys[path] = error.strerror
dumps = {}
for words in ("ip -j -d link", "ip -j -d addr", "ip -j route", "ip -j -6 route", "tc -j qdisc"):
    dumps[words] = json.loads(subprocess.run(words.split(), capture_output=True, check=True).stdout or "[]")
for link in dumps["ip -j -d addr"]:
    for address in link.get("addr_info", []):
        address.pop("tentative", None)  # duplicate address detection comes to its end meanwhile
drivers = {}
with Ethtool() as ethtool:
    for name in os.listdir("/sys/class/net"):
        for command in (Command.FEATURES_GET, Command.CHANNELS_GET, Command.RINGS_GET, Command.COALESCE_GET):
            drivers[f"{name} {command.name}"] = repr(ethtool.get(command, name))
json.dump({"keys": keys, "dumps": dumps, "drivers": drivers}, sys.stdout)
"""


def python_in(place: Namespace, folder: Path) -> Path:
    """A program that runs Python in `place`, without the right to set the clock, under its own process id."""
    program = folder / "python-there"
    program.write_text("#!/bin/sh\nexec " + " ".join(place.command(sys.executable)) + ' "$@"\n')
    program.chmod(0o755)
    return program


def snapshot(place: Namespace) -> dict[str, dict[str, object]]:
    """Every writable net.* and vm.* key, and dumps of links, addresses, routes and drivers, all without counters."""
    done = subprocess.run(
        place.command(sys.executable, "-c", _SNAPSHOT), capture_output=True, text=True, check=True, timeout=60,
        env=environment(),
    )  # fmt: skip
    found: dict[str, dict[str, object]] = json.loads(done.stdout)
    return found


def differences(before: dict[str, dict[str, object]], after: dict[str, dict[str, object]]) -> list[str]:
    """One line for everything that is not as it was."""
    return [
        f"{part} {key}: {values.get(key)} -> {after[part].get(key)}"
        for part, values in before.items()
        for key in sorted(values.keys() | after[part].keys())
        if values.get(key) != after[part].get(key)
    ]


@dataclass(frozen=True)
class TunedNode:
    """A daemon in `place`."""

    daemon: Clockgated
    place: Namespace

    def tune(self, action: str, *words: str) -> subprocess.CompletedProcess[str]:
        """`clockgatectl tune`, in this process: a new one costs half a second of CPU each time."""
        admin = ("--admin-address", str(self.daemon.admin_socket)) if action in ("apply", "revert") else ()
        line = ["--address", str(self.daemon.socket), "tune", action, *admin, *words]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(line)
        return subprocess.CompletedProcess(line, code, out.getvalue(), err.getvalue())

    def planned(self) -> str:
        """The hash of the plan now."""
        plan = json.loads(self.tune("plan", "--json").stdout)
        plan_hash: str = plan["plan_hash"]
        return plan_hash

    def applied(self) -> subprocess.CompletedProcess[str]:
        """Plan and apply."""
        return self.tune("apply", self.planned())

    def verdicts(self) -> dict[str, str]:
        """What verify says about each knob that is applied, by its key and link."""
        found = json.loads(self.tune("verify", "--json").stdout)["verdicts"]
        return {
            f"{one['knob'].get('link', {}).get('name', '')} {one['knob']['key']}".strip(): one["code"].removeprefix(
                "VERDICT_CODE_"
            )
            for one in found
        }


@contextmanager
def tuned_node(place: Namespace, folder: Path, profile: str = "", tuning: str = "") -> Iterator[TunedNode]:
    """A daemon in `place` whose profile tunes the links eth*; the other end, 10.77.0.2, proves reachability."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "site.toml").write_text(f'extends = "tcp"\nsummary = "a test"\nlinks = ["eth*"]\n{profile}\n')
    settings = (
        f'[tuning]\nprofile = "site"\nprofile_folder = "{folder}"\nrtt_ms = 100\nprobe_hosts = ["10.77.0.2"]\n'
        f"confirm_s = 6\n{tuning}\n"
    )
    with clockgated(folder, toml(folder, extra=settings), python=python_in(place, folder)) as daemon:
        yield TunedNode(daemon, place)
