"""Starts the ranks of a scenario: forked, under a parent, or by the launcher, each with its flags and its faults."""

import json
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path

from support.chaos.node import Node
from support.chaos.phases import Armed
from support.chaos.rank import FAULTS_VARIABLE
from support.chaos.scenario import KEPT, SAVE_EVERY, STEPS, STOPPED
from support.chaos.scene import Scene
from support.chaos.small import PACE_VARIABLE
from support.chaos.warm import Process, Warm

VOTE_TIMEOUT_S, SAVE_TIMEOUT_S, DDP_TIMEOUT_S, HOLD_TIMEOUT_S = 4, 2, 6, 2
PATIENT_S = 30
# Ranks of a launcher import torch each for itself before they meet.
START_S = 40
_LOOK_S = 0.005


class Crew:
    """`nodes` hold the daemons of the ranks, `first_port` is where a free port is looked for from."""

    def __init__(self, warm: Warm, nodes: Sequence[Node], first_port: int) -> None:
        self._warm = warm
        self._nodes = nodes
        self._ports = count(first_port)

    def start(self, scene: Scene) -> None:
        """Start the ranks as the scenario wants it, with its faults armed."""
        needs = scene.needs
        log = scene.marks / "log"
        if "launcher" in needs:
            armed = json.dumps([asdict(one) for one in self._armed(scene)])
            environment = {FAULTS_VARIABLE: armed, PACE_VARIABLE: str(scene.scenario.pace_s), "OMP_NUM_THREADS": "1"}
            words = ["--nproc_per_node", str(scene.scenario.ranks), "--max_restarts", "1", "--"]
            arguments = {
                "arguments": [*words, *self._flags(scene, 0, scene.run)],
                "folder": str(scene.run),
                "environment": environment,
            }
            scene.ranks = [self._warm.start("support.chaos.agents:launcher", arguments, log)]
        elif "parent" in needs:
            notes = scene.marks / "pids"
            ranks = [
                self._rank(scene, rank, scene.run, port) for port in [self._port()] for rank in self._places(scene)
            ]
            scene.agent = self._warm.start("support.chaos.agents:parent", {"ranks": ranks, "notes": str(notes)}, log)
            _wait_for(notes)
            scene.ranks = [self._warm.adopt(int(pid), log) for pid in notes.read_text(encoding="ascii").split()]
        else:
            scene.ranks = self.fork(scene, scene.run)

    def fork(self, scene: Scene, run: Path, *, faults: bool = True) -> list[Process]:
        """Ranks of a run in the folder `run`, forked from the zygote."""
        port = self._port()
        return [
            self._warm.start(
                "support.chaos.rank:forked",
                self._rank(scene, rank, run, port, faults=faults),
                scene.marks / f"{run.name}-{rank}.log",
            )
            for rank in self._places(scene)
        ]

    def _places(self, scene: Scene) -> range:
        return range(scene.scenario.ranks)

    def _rank(self, scene: Scene, rank: int, run: Path, port: int, *, faults: bool = True) -> dict[str, object]:
        environment = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(scene.scenario.ranks),
            "LOCAL_WORLD_SIZE": str(scene.scenario.ranks),
            "MASTER_ADDR": "10.77.0.1" if scene.spaces else "127.0.0.1",
            "MASTER_PORT": str(port),
            PACE_VARIABLE: str(scene.scenario.pace_s if scene.faults else 0),
        }
        if scene.spaces:
            environment["GLOO_SOCKET_IFNAME"] = "eth0"
        armed = [asdict(one) for one in self._armed(scene) if one.rank == rank] if faults else []
        versions = dict(scene.scenario.versions) if scene.faults else {}
        return {
            "flags": self._flags(scene, rank, run),
            "environment": environment,
            "armed": armed,
            "namespace": scene.spaces[rank].name if scene.spaces else None,
            "protocol": versions.get(rank),
            "home": [str(scene.homes[rank]), str(run)] if scene.homes else [],
        }

    def _flags(self, scene: Scene, rank: int, run: Path) -> list[str]:
        patience_s = START_S if "launcher" in scene.scenario.needs else DDP_TIMEOUT_S
        # Only a run that may stop for its clocks gives up on them soon: on a busy machine a good daemon may be late.
        hold_s = HOLD_TIMEOUT_S if scene.faults and STOPPED in scene.scenario.ends else PATIENT_S
        return [
            "--output_dir", str(run), "--max_steps", str(STEPS), "--save_steps", str(SAVE_EVERY),
            "--save_total_limit", str(KEPT), "--gradient_accumulation_steps", "2", "--device", "cpu", "--seed", "0",
            "--learning_rate", "0.01", "--vote_timeout", str(VOTE_TIMEOUT_S), "--save_timeout", str(SAVE_TIMEOUT_S),
            "--ddp_timeout", str(patience_s), "--hold_timeout", str(hold_s), "--time_sync_check", "auto",
            "--on_unknown", scene.scenario.on_unknown, "--clock_daemon", str(self._nodes[rank].socket),
            *scene.scenario.flags,
        ]  # fmt: skip

    def _armed(self, scene: Scene) -> list[Armed]:
        if not scene.faults:
            return []
        return [
            Armed(deed.rank, deed.phase, deed.step, deed.what if deed.is_own_signal else "meet", scene.mark(place))
            for place, deed in enumerate(scene.scenario.deeds)
        ]

    def _port(self) -> int:
        for port in self._ports:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
                return port
        raise RuntimeError("no port is free")


def _wait_for(path: Path) -> None:
    due = time.monotonic() + START_S
    while not path.exists():
        if time.monotonic() > due:
            raise RuntimeError(f"{path} does not appear")
        time.sleep(_LOOK_S)
