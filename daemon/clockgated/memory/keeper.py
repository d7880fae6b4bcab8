"""The memory of one daemon: takes up what an earlier process left, keeps each cycle, journals each new epoch.

Nothing here may stop the daemon: what cannot be written or read is told once, and it goes on.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from clockgated import host
from clockgated.clock.continuity import Look
from clockgated.clock.model import Reading, Reason, ReasonCode, SourceKind
from clockgated.clock.state import StatePolicy, Track, reading_of, start
from clockgated.clock.witness import KernelLook
from clockgated.memory.epochs import Disruption, EpochJournal, disruption, highest_epoch
from clockgated.memory.last_reading import LastReadingFile
from clockgated.memory.resume import Discarded, Resumed, SavedReading, Steering, resume, saved_reading
from clockgated.units import NS_PER_S

LAST_READING = "last-reading.json"
EPOCHS = "epochs.jsonl"

_LOG = logging.getLogger(__name__)
_KEPT_EPOCHS = 1000


@dataclass(frozen=True)
class Opening:
    """Where the first cycle of this process goes on from."""

    track: Track
    look: Look


class Keeper:
    """Call `open` once, then `keep` and `begin_epoch` from one thread; `epochs` from any."""

    def __init__(self, last_reading: LastReadingFile, journal: EpochJournal, boot_id: str) -> None:
        self._last_reading = last_reading
        self._journal = journal
        self._boot_id = boot_id
        self._epochs: tuple[Disruption, ...] = ()
        self._is_saving = True

    @classmethod
    def of_folders(cls, run: Path, state: Path, boot_id: str) -> "Keeper":
        """With the last reading below `run`, which a reboot empties, and the journal below `state`, which is made."""
        try:
            state.mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            _LOG.warning("%s cannot be made: %s; epochs are not journaled", state, error.strerror)
        return cls(LastReadingFile(run / LAST_READING), EpochJournal(state / EPOCHS), boot_id)

    def open(
        self,
        kind: SourceKind,
        policy: StatePolicy,
        kernel: KernelLook | None,
        stamp: Callable[[], host.Stamp] = host.stamp,
    ) -> Opening:
        """Take up the last reading, or begin an epoch above every earlier one of this boot."""
        content = self._journal.read()
        for sentence in content.discarded:
            _LOG.warning("journal of epochs: skipped %s", sentence)
        self._epochs = content.disruptions[-_KEPT_EPOCHS:]
        tight = host.tightest(stamp)
        look = Look(tight.boot_ns, tight.mono_ns, tight.wall_ns, error_ns=tight.error_ns)
        found = self._last_reading.load()
        resumed = self._resumed(found, kind, look, kernel, policy)
        if isinstance(resumed, Discarded):
            opening = Opening(self._fresh(kind, look, self._highest_of(found) + 1, resumed.why), look)
        else:
            opening = Opening(resumed.track, resumed.look)
        self.keep(reading_of(opening.track, self._boot_id, policy), opening.track, opening.look, kernel)
        return opening

    def keep(self, reading: Reading, track: Track, look: Look, kernel: KernelLook | None) -> None:
        """Save one cycle. Call before the reading is published."""
        try:
            self._last_reading.save(saved_reading(reading, track, look, steering_of(kernel)))
        except OSError as error:
            if self._is_saving:
                _LOG.warning("the last reading cannot be kept for the next start: %s", error)
            self._is_saving = False
            with suppress(OSError):
                self._last_reading.discard()
        else:
            self._is_saving = True

    def begin_epoch(self, epoch: int, look: Look, causes: tuple[Reason, ...], jump_ns: int | None = None) -> None:
        """Journal a new epoch. Call before a reading of it is published."""
        begun = disruption(epoch, self._boot_id, look, causes, jump_ns)
        self._epochs = (*self._epochs, begun)[-_KEPT_EPOCHS:]
        complaint = self._journal.append(begun)
        if complaint is not None:
            _LOG.warning("%s", complaint)

    def epochs(self) -> tuple[Disruption, ...]:
        """The newest epochs, the newest last, those of earlier boots included."""
        return self._epochs

    def _resumed(
        self,
        found: SavedReading | Discarded,
        kind: SourceKind,
        look: Look,
        kernel: KernelLook | None,
        policy: StatePolicy,
    ) -> Resumed | Discarded:
        if isinstance(found, Discarded):
            return found
        highest = highest_epoch(self._epochs, self._boot_id) or 0
        recorded = self._cause_of(highest) if highest > found.reading.epoch else None
        resumed = resume(found, look, self._boot_id, steering_of(kernel), policy, recorded=recorded)
        if isinstance(resumed, Discarded):
            return resumed
        if found.reading.source_kind is not kind:
            was = found.reading.source_kind.name.lower()
            return Discarded(f"the last reading was derived from {was}, now the source is {kind.name.lower()}")
        _LOG.info("%s", resumed.track.reasons[-1].detail)
        if not resumed.breaks:
            return resumed
        resumed = replace(resumed, track=replace(resumed.track, epoch=max(resumed.track.epoch, highest + 1)))
        self.begin_epoch(resumed.track.epoch, resumed.look, resumed.breaks, resumed.jump_ns)
        return resumed

    def _cause_of(self, epoch: int) -> Reason:
        """Why an epoch of this boot began that was journaled and, as the process died, not saved any more."""
        one = next(one for one in self._epochs if (one.boot_id, one.epoch) == (self._boot_id, epoch))
        return Reason(ReasonCode.__members__.get(one.code, ReasonCode.STARTING), one.detail)

    def _highest_of(self, found: SavedReading | Discarded) -> int:
        """The highest epoch of this boot that anything tells of; 0 when nothing does."""
        recorded = highest_epoch(self._epochs, self._boot_id) or 0
        if isinstance(found, SavedReading) and found.reading.boot_id == self._boot_id:
            return max(found.reading.epoch, recorded)
        return recorded

    def _fresh(self, kind: SourceKind, look: Look, least_epoch: int, why: str) -> Track:
        """A start that nobody watched the clock before: it begins an epoch.

        Where every trace of earlier ones is lost, seconds of uptime exceed them: an epoch rises by one in a cycle at
        most, and seldom.
        """
        epoch = max(least_epoch, look.boot_ns // NS_PER_S)
        cause = Reason(ReasonCode.STARTING, f"started without a reading to go on from: {why}")
        _LOG.info("%s", cause.detail)
        self.begin_epoch(epoch, look, (cause,))
        return start(kind, look.boot_ns, epoch)


def steering_of(kernel: KernelLook | None) -> Steering | None:
    """How the kernel steers, for comparing after a restart."""
    return None if kernel is None else Steering(round(kernel.freq_ppb), kernel.tick_us)
