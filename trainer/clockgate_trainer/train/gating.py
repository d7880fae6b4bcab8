"""Makes the gate of a run from its flags, and finds out whether the nodes' clock daemons are there."""

from collections.abc import Mapping

from clockgate.dial import Tls

from clockgate_trainer.flags.table import Settings
from clockgate_trainer.gate.address import resolve_address, resolve_tls
from clockgate_trainer.gate.gate import ClockGate, GateSettings, OnEvent
from clockgate_trainer.gate.limits import make_limits
from clockgate_trainer.gate.model import Limits
from clockgate_trainer.gate.policy import OnUnknown
from clockgate_trainer.gate.sidecar import ClockSide, NullSidecar, Sidecar
from clockgate_trainer.gate.vote import open_vote
from clockgate_trainer.train.distributed import Meeting, Place, SharedError
from clockgate_trainer.train.report import Reporter
from clockgate_trainer.train.start import together

# A daemon that is up answers within milliseconds; one that is being restarted by systemd within two seconds.
_ANSWER_WITHIN_S = 3.0


def make_gate(
    settings: Settings, place: Place, meeting: Meeting, environment: Mapping[str, str], reporter: Reporter
) -> ClockGate:
    """The gate of this rank. A collective.

    Under `--time_sync_check true` raises SharedError when the daemon of one does not answer; under auto
    a job none of whose daemons answers goes on without, and says so.
    """
    side = _clock_side(settings, place, meeting, environment, reporter)
    gate_settings = GateSettings(
        limits=_limits(settings),
        on_unknown=OnUnknown(settings.unknown_policy),
        vote_timeout_s=settings.vote_timeout,
        hold_timeout_s=settings.hold_timeout,
    )
    on_event: OnEvent = reporter.on_gate_event
    return ClockGate(open_vote(settings.vote_timeout), side, gate_settings, on_event)


def _clock_side(
    settings: Settings, place: Place, meeting: Meeting, environment: Mapping[str, str], reporter: Reporter
) -> ClockSide:
    if settings.time_sync_check == "false":
        reporter.say("the clock gate is off (--time_sync_check false)")
        return NullSidecar()
    address, tls = together(meeting, lambda: _line(settings, environment))
    side = Sidecar(
        address, _limits(settings), job=settings.job, rank=place.rank, with_lease=place.local_rank == 0, tls=tls
    )
    reached = meeting.gather(side.await_answer(_ANSWER_WITHIN_S))
    silent = tuple(rank for rank, answered in enumerate(reached) if not answered)
    if not silent:
        reporter.say(f"the clock daemon answers at {address}")
        return side
    all_silent = len(silent) == place.world_size
    who = "no clock daemon answers" if all_silent else f"the clock daemon of {_ranks(silent)} does not answer"
    if settings.time_sync_check == "true":
        side.close()
        raise SharedError(
            f"{who} (this rank looked at {address}): start clockgated, or name its socket with "
            "--clock_daemon, or train without it with --time_sync_check false",
            ranks=silent,
        )
    reporter.say(f"{who} (looked at {address}): training goes by --on_unknown {settings.unknown_policy} until it does")
    return side


def _line(settings: Settings, environment: Mapping[str, str]) -> tuple[str, Tls]:
    address = resolve_address(settings.clock_daemon, environment)
    return address, resolve_tls(address, environment)


def _limits(settings: Settings) -> Limits:
    return make_limits(settings.max_sync_delay, settings.warn_delay_ms)


def _ranks(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
