"""The thread that looks at the machine every few seconds and publishes what it makes of it.

Far from the clock: a GPU driver or a file system that hangs for minutes holds up nothing but what is told of it.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from clockgated import host
from clockgated.config import NodeConfig
from clockgated.node.board import NodeBoard
from clockgated.node.errands import Answer, Errands, Part
from clockgated.node.facts import NodeLook
from clockgated.node.judge import Judged, Overdue, judge
from clockgated.node.kernel_log import KernelLog
from clockgated.node.look_fabric import FabricWatch, look_platform
from clockgated.node.look_gpus import GpuWatch
from clockgated.node.look_host import look_disks, look_host
from clockgated.node.model import Finding, NodeHealth, Severity
from clockgated.tuning.roots import Roots
from clockgated.units import NS_PER_S

_LOG = logging.getLogger(__name__)
_PATIENCE_S = 3.0
_LEAST_PAUSE_S = 1.0
_PLATFORM_EVERY_NS = 60 * NS_PER_S
_EXTRAS = "extras"
EXTRAS_EVERY_NS = 30 * NS_PER_S
"""How often drivers and peers are asked at most."""

Extras = Callable[[], Any]
"""Asks drivers and peers; returns `facts.Extras`."""


def host_parts(settings: Callable[[], NodeConfig], folders: tuple[str, ...], extras: Extras) -> dict[str, Part]:
    """The parts of this machine, by the names of the fields of NodeLook. `settings` are those in force."""
    roots, gpus = Roots(), GpuWatch()
    return {
        "host": Part(lambda: look_host(roots)),
        "disks": Part(lambda: look_disks((*folders, *settings().folders), roots)),
        "fabric": Part(FabricWatch(roots).look),
        "platform": Part(lambda: look_platform(roots), _PLATFORM_EVERY_NS),
        "kernel": Part(KernelLog().look),
        "gpus": Part(lambda: gpus.look() if settings().gpus else gpus.rest()),
        _EXTRAS: Part(extras, EXTRAS_EVERY_NS),
    }


class NodeWatch:
    """Looks from `start` until `stop`, every `settings.look_interval_s` and sooner when extras are asked for."""

    def __init__(self, settings: NodeConfig, parts: Mapping[str, Part], board: NodeBoard) -> None:
        self._settings = settings
        self._errands = Errands(parts)
        self._board = board
        self._judged: Judged | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node", daemon=True)

    def reconfigure(self, settings: NodeConfig) -> None:
        """Take other settings into use, from the next look on."""
        self._settings = settings

    def start(self) -> None:
        """Begin with a first look."""
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end after the look in hand; does not wait."""
        self._stopping.set()

    def look(self, *, is_asked: bool) -> NodeHealth:
        """Look once and publish. `is_asked`: drivers and peers too, if it is time."""
        now_boot_ns = host.boot_ns()
        answers = self._errands.look(_PATIENCE_S, without=frozenset() if is_asked else frozenset({_EXTRAS}))
        overdue = [Overdue(name, since) for name, since in self._errands.overdue().items()]
        before = self._judged
        judged = judge(before, _look_of(answers), overdue, now_boot_ns, self._settings)
        extras = answers.get(_EXTRAS)
        self._judged = replace(
            judged, health=replace(judged.health, extras_boot_ns=extras.as_of_boot_ns if extras else None)
        )
        _tell(before.health.findings if before else (), judged.health.findings)
        if not self._stopping.is_set():
            self._board.publish(self._judged.health)
        return self._judged.health

    def _run(self) -> None:
        is_asked = False
        while not self._stopping.is_set():
            self.look(is_asked=is_asked)
            # Asking again and again must not keep a processor busy.
            if self._stopping.wait(_LEAST_PAUSE_S):
                return
            is_asked = self._board.take_asked(self._settings.look_interval_s - _LEAST_PAUSE_S)


def _look_of(answers: Mapping[str, Answer]) -> NodeLook:
    return NodeLook(**{name: answer.value for name, answer in answers.items()})


def _tell(before: tuple[Finding, ...], now: tuple[Finding, ...]) -> None:
    """Log what is new and what is over, warnings and worse."""
    known = {(one.code, one.subject): one for one in before}
    here = {(one.code, one.subject) for one in now}
    for one in now:
        earlier = known.get((one.code, one.subject))
        if one.severity >= Severity.WARNING and (earlier is None or earlier.severity < one.severity):
            level = logging.ERROR if one.severity is Severity.CRITICAL else logging.WARNING
            _LOG.log(
                level,
                "node: %s: %s: %s; wanted: %s; %s",
                one.code.name,
                one.subject,
                one.value,
                one.wanted,
                one.next_step,
            )
    for key, one in known.items():
        if key not in here and one.severity >= Severity.WARNING:
            _LOG.info("node: over: %s: %s", one.code.name, one.subject)
