"""Does the deeds of a scenario to ranks, daemons, disks and links, and undoes them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from signal import Signals

from support.chaos.crew import Crew
from support.chaos.node import Node
from support.chaos.scenario import Deed
from support.chaos.scene import Scene
from support.chaos.warm import Process, Warm
from support.veth import Namespace

_LONG_S = 60


class Hands:
    """`nodes` are what is done something to, `crew` starts second runs."""

    def __init__(self, warm: Warm, nodes: Sequence[Node], crew: Crew) -> None:
        self._warm = warm
        self._nodes = nodes
        self._crew = crew

    def strike(self, scene: Scene, place: int, deed: Deed) -> None:
        """Do a deed now and let the rank go on, or the other way round; plan its undoing."""
        mark = Path(f"{scene.mark(place)}.done")
        if deed.is_own_signal:
            if deed.for_s:
                scene.plan(deed.for_s, lambda: _send(scene.ranks, deed.of, "SIGCONT"))
            return
        if deed.after_s:
            mark.touch()
            scene.plan(deed.after_s, lambda: self._do(scene, deed))
        else:
            self._do(scene, deed)
            mark.touch()

    def _do(self, scene: Scene, deed: Deed) -> None:
        undo = self._deed(scene, deed)
        if undo is not None and deed.for_s:
            scene.plan(deed.for_s, undo)

    def _deed(self, scene: Scene, deed: Deed) -> Callable[[], None] | None:
        """Do it; returns what undoes it."""
        node = self._nodes[deed.of]
        match deed.what:
            case "daemon" if deed.value == "restart":
                node.restart()
            case "daemon":
                node.signal(deed.value)
                return node.settle
            case "impostor":
                node.impersonate(deed.value)
                return node.settle
            case "drill":
                node.drill(deed.value, deed.for_s)
            case "reference":
                node.change_reference()
                return lambda: node.settle("alone")
            case "flood":
                flood = self._warm.start(
                    "support.chaos.agents:flood", {"socket": str(node.socket)}, scene.marks / "flood.log"
                )
                scene.plan(_LONG_S, flood.end)
            case "lease":
                node.break_leases()
            case "chronyd":
                assert scene.chrony is not None
                chronyd = scene.chrony.server if deed.value == "server" else scene.chrony.client
                chronyd.process.send_signal(Signals.SIGSTOP)
                scene.plan(_LONG_S, lambda: chronyd.process.send_signal(Signals.SIGCONT))
            case "link":
                scene.spaces[0].run("ip", "link", "set", "eth0", "down")
                return lambda: _up(scene.spaces)
            case "disk":
                assert scene.disk is not None
                scene.disk.turn(deed.value)
                return scene.disk.mend
            case "run":
                self._second_run(scene, deed.value)
            case "parent":
                assert scene.agent is not None
                scene.agent.signal(Signals[deed.value])
            case "launcher":
                scene.ranks[0].signal(Signals[deed.value])
            case _:
                _send(scene.ranks, deed.of, deed.what)
                return lambda: _send(scene.ranks, deed.of, "SIGCONT")
        return None

    def _second_run(self, scene: Scene, value: str) -> None:
        run = scene.run if value == "same" else scene.marks / "second"
        scene.extra = self._crew.fork(scene, run, faults=False)
        scene.second = run
        if value == "same":
            scene.extra[0].wait(_LONG_S)


def _send(ranks: Sequence[Process], rank: int, name: str) -> None:
    if rank < len(ranks):
        ranks[rank].signal(Signals[name])


def _up(spaces: Sequence[Namespace]) -> None:
    spaces[0].run("ip", "link", "set", "eth0", "up")
