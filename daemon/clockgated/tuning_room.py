"""Everything of tuning that runs in this daemon: the desk, the thread that looks for drift, what answers the API."""

import logging
from pathlib import Path

from clockgated import host
from clockgated.config import Config, TuningConfig
from clockgated.lease_desk import LeaseDesk
from clockgated.manage.planned import Plan
from clockgated.publish import Publisher
from clockgated.service.tuning_changes import TuningAdminServicer, TuningReadServicer
from clockgated.tuning.claim import sole_apply
from clockgated.tuning.desk import Outside, Tally, Tools, TuningDesk
from clockgated.tuning.interlock import ClockLook, clock_look
from clockgated.tuning.journal_file import JournalFile
from clockgated.tuning.outcome import OutcomeCode
from clockgated.tuning.survey import Surveyor
from clockgated.tuning.transaction import give_all_back, recover
from clockgated.tuning.watch import DriftWatch

_LOG = logging.getLogger(__name__)
_FOLDER = "tuning"
_PATIENCE_S = 0.2
_CHATTY = ("asyncio", "pyroute2")
"""Loggers of libraries that would fill a debug log with every netlink message."""


class TuningRoom:
    """Begins with `start`; `follow` tells it of each plan that is put in force. What was applied outlives it."""

    def __init__(self, settings: Config, boot_id: str, publisher: Publisher, leases: LeaseDesk) -> None:
        for name in _CHATTY:
            logging.getLogger(name).setLevel(logging.INFO)
        self._publisher = publisher
        self._ptp_sources: frozenset[str] = frozenset()
        self._surveyor = Surveyor(settings.tuning)
        self._desk = TuningDesk(
            settings.tuning,
            journal_folder(Path(settings.folders.state)),
            survey=self._surveyor.survey,
            make_tools=_host_tools,
            outside=Outside(leases.step_refusal, self._clock),
            boot_id=boot_id,
        )
        self._watch = DriftWatch(self._look, settings.tuning.drift_poll_s, self._desk.news_group)
        self.servicers = (TuningReadServicer(self._desk), TuningAdminServicer(self._desk))

    def start(self) -> None:
        """Undo what an earlier daemon left unfinished, then look for drift."""
        self._desk.start()
        self._watch.start()

    def follow(self, settings: TuningConfig, plan: Plan) -> None:
        """Take the settings, and the clock plan that is in force, into use."""
        self._ptp_sources = frozenset(one.refid for one in plan.ptp if one.refid is not None)
        if settings != self._desk.settings:
            self._surveyor.reconfigure(settings)
            self._desk.reconfigure(settings)
            self._watch.poll_s = settings.drift_poll_s

    def tally(self) -> Tally | None:
        """What the last comparison found."""
        return self._desk.tally

    def stop(self) -> None:
        """End the thread; settings stay as they are."""
        if not self._watch.stop(_PATIENCE_S):
            _LOG.warning("tuning: a comparison is still running; it ends with the process")

    def _look(self) -> bool:
        self._surveyor.sample()
        return self._desk.watch()

    def _clock(self) -> ClockLook:
        return clock_look(self._publisher.latest(), self._ptp_sources)


def journal_folder(state: Path) -> Path:
    """Where the journal lies below the state folder."""
    return state / _FOLDER


def revert_offline(folder: Path) -> tuple[str, ...]:
    """Give back everything that the journal in `folder` tells of, without a daemon; what could not be, in words.

    What somebody else has changed since is theirs and no complaint. Raises JournalError.
    """
    boot_id = host.boot_id()
    if not JournalFile(folder, boot_id).path.exists():
        return ()
    with sole_apply(folder) as holder:
        if holder is not None:
            return (f"{holder} is applying or giving back; stop clockgated first",)
        tools = _host_tools(TuningConfig(), folder, Outside(lambda: None, ClockLook))
        journal = JournalFile(folder, boot_id)
        recover(journal, tools.hand, tools.around.stamps, boot_id)
        outcomes = give_all_back(journal, tools.hand, tools.around.stamps, "tuning is removed")
    return tuple(f"{one.knob.subject}: {one.detail}" for one in outcomes if one.code is OutcomeCode.FAILED)


def _host_tools(settings: TuningConfig, folder: Path, outside: Outside) -> Tools:
    # pyroute2 costs 0.3 s of CPU to import, which a daemon that is never asked to tune need not pay.
    from clockgated.tuning.host_tools import host_tools  # noqa: PLC0415

    return host_tools(settings, folder, outside)
