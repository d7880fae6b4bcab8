"""One rank of a run under faults: the trainer's own `run.main` with a small model, and the faults due in this rank.

Forked by the zygote, or `python -m support.chaos.rank FLAGS` in a rank of the launcher; CHAOS_FAULTS in the environment
then holds what is armed, in JSON.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import clockgate_trainer.gate.gate
import torch
from clockgate_trainer.errors import UsageError
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.train import run
from support.chaos.disk import own_mounts
from support.chaos.phases import Armed, arm
from support.chaos.scenario import WALL, WEIGHTS
from support.chaos.small import PARTS, spoil_weights
from support.chaos.wall import Wall

FAULTS_VARIABLE = "CHAOS_FAULTS"
_CLONE_NEWNET = 0x40000000


def forked(
    *,
    flags: Sequence[str],
    environment: Mapping[str, str],
    armed: Sequence[Mapping[str, object]],
    namespace: str | None = None,
    protocol: int | None = None,
    home: Sequence[str] = (),
) -> int:
    """Be the rank that `environment` names, in the network namespace `namespace` if one is named.

    `home` is a folder and where this rank sees it, with nobody else seeing it there.
    `protocol` makes this rank's rows those of another version of the program.
    """
    if namespace is not None:
        _enter(namespace)
    os.environ.update(environment)
    if home:
        own_mounts()
        subprocess.run(["mount", "--bind", *home], check=True, timeout=20)
    if protocol is not None:
        clockgate_trainer.gate.gate.PROTOCOL_VERSION = protocol  # type: ignore[attr-defined]  # it imports the name
    return train(flags, [Armed(**one) for one in armed])  # type: ignore[arg-type]  # they were made from Armed


def warm_up() -> None:
    """Let the first optimizer import what torch.compile is made of: seconds that shall not pass within a run."""
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])


def train(flags: Sequence[str], armed: Sequence[Armed]) -> int:
    """Train as one rank; returns its exit code."""
    if armed:
        wall = Wall()
        wall.bend()
        arm(armed, {WEIGHTS: spoil_weights, WALL: wall.jump})
    try:
        settings = parse(flags)
    except UsageError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return run.main(settings, os.environ, PARTS)


def _enter(namespace: str) -> None:
    handle = os.open(Path("/run/netns") / namespace, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(handle, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"namespace {namespace} cannot be entered")
    os.close(handle)


if __name__ == "__main__":
    own = [Armed(**one) for one in json.loads(os.environ.get(FAULTS_VARIABLE, "[]"))]
    here = int(os.environ["RANK"])
    signal.alarm(150)
    warm_up()
    sys.exit(train(sys.argv[1:], [one for one in own if one.rank == here]))
