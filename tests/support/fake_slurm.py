"""scontrol, srun and scancel that keep one node's state in files and tell what they were asked; and our own programs
beside them.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support.daemon import SOURCE_ROOTS
from support.tools import ROOT

SCRIPTS = ROOT / "examples/slurm"
NODE = "node7"

_SCONTROL = """\
#!/bin/sh
echo "scontrol $*" >>"$FAKE/calls"
case "$1 $2" in
    "show hostnames") printf 'node7\\nnode8\\n' ;;
    "show node") echo "NodeName=$3 State=$(cat "$FAKE/state")$(sed 's/^/ Reason=/' "$FAKE/reason")" ;;
    update*)
        for word in "$@"; do
            case $word in
                State=DRAIN) echo IDLE+DRAIN >"$FAKE/state" ;;
                State=RESUME) echo IDLE >"$FAKE/state"; : >"$FAKE/reason" ;;
                Reason=*) printf '%s [root@2026-12-01T00:00:00]\\n' "${word#Reason=}" >"$FAKE/reason" ;;
            esac
        done ;;
esac
"""
_SCANCEL = """\
#!/bin/sh
echo "scancel $*" >>"$FAKE/calls"
echo asked >"$FAKE/asked"
"""
# The step of the job: ends with what the test says, or once scancel has asked.
_SRUN = """\
#!/bin/sh
echo "srun $*" >>"$FAKE/calls"
if [ -e "$FAKE/until_asked" ]; then
    while [ ! -e "$FAKE/asked" ]; do sleep 0.05; done
fi
exit "$(cat "$FAKE/srun_code")"
"""
_CLOCKGATECTL = f"""\
#!/bin/sh
case $1 in leases | lease) first=$1; shift; set -- "$first" --admin-address "$FAKE_ADMIN" "$@" ;; esac
PYTHONPATH={SOURCE_ROOTS} exec {sys.executable} -m clockgated.ctl.main "$@"
"""


@dataclass(frozen=True)
class Slurm:
    """A folder with the programs and what they wrote. `admin` is the admin socket of the daemon under test."""

    folder: Path
    address: Path
    admin: Path

    def run(self, script: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run one of the scripts to its end."""
        return subprocess.run(
            self._line(script, words),
            env=self._environment(env),
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
        )

    def start(self, script: str, *words: str, **env: str) -> subprocess.Popen[str]:
        """Start one of the scripts, with its output in a pipe."""
        return subprocess.Popen(
            self._line(script, words), env=self._environment(env), stdout=subprocess.PIPE, text=True
        )

    def calls(self, program: str = "") -> list[str]:
        """What Slurm's programs were asked, in order."""
        file = self.folder / "calls"
        return [line for line in (file.read_text().splitlines() if file.exists() else []) if line.startswith(program)]

    @property
    def state(self) -> tuple[str, str]:
        """State and reason of the node."""
        return (self.folder / "state").read_text().strip(), (self.folder / "reason").read_text().strip()

    def set_state(self, state: str, reason: str = "") -> None:
        """As an administrator would."""
        (self.folder / "state").write_text(f"{state}\n")
        (self.folder / "reason").write_text(f"{reason}\n" if reason else "")

    def _line(self, script: str, words: Sequence[str]) -> list[str]:
        return [str(SCRIPTS / script), *words]

    def _environment(self, changes: dict[str, str]) -> dict[str, str]:
        own = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "CLOCKGATE"))}
        return (
            own
            | {
                "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
                "FAKE": str(self.folder),
                "FAKE_ADMIN": str(self.admin),
                "CLOCKGATE_ADDRESS": str(self.address),
                "CLOCKGATE_MARK": str(self.folder / "mark/drained"),
                "CLOCKGATE_HEALTH": "0",
                "CLOCKGATE_TRIES": "1",
                "CLOCKGATE_ASK_S": "20",
                "SLURMD_NODENAME": NODE,
            }
            | changes
        )


def slurm(folder: Path, address: Path, admin: Path) -> Slurm:
    """Programs of a fresh Slurm below `folder`, its node idle."""
    programs = {"scontrol": _SCONTROL, "scancel": _SCANCEL, "srun": _SRUN, "clockgatectl": _CLOCKGATECTL}
    (folder / "bin").mkdir(parents=True)
    for name, text in programs.items():
        put_program(folder, name, text)
    made = Slurm(folder, address, admin)
    made.set_state("IDLE")
    (folder / "srun_code").write_text("0")
    return made


def put_program(folder: Path, name: str, text: str) -> None:
    """A program of that name, in place of another."""
    (folder / "bin" / name).write_text(text)
    (folder / "bin" / name).chmod(0o755)


def signal_once_it_runs(made: Slurm, process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal to the batch script once its step has begun; AssertionError when that never happens."""
    due = time.monotonic() + 20
    while not made.calls("srun"):
        assert time.monotonic() < due, "the step never began"
        time.sleep(0.05)
    process.send_signal(number)
