"""One run of the daemon, from the configuration to its end: builds the parts in the order in which they may exist."""

from contextlib import closing
from pathlib import Path

from clockgated import descriptors, host, systemd, units
from clockgated.beats import Beats
from clockgated.clock.state import reading_of, start
from clockgated.config import Config
from clockgated.cycle import Cycle
from clockgated.drill import DrillBoard
from clockgated.instance import FolderClaim
from clockgated.lease_desk import LeaseDesk
from clockgated.manage.handover import Handover
from clockgated.memory.keeper import Keeper
from clockgated.metrics_room import MetricSources, MetricsRoom
from clockgated.narrator import Narrator
from clockgated.node_room import NodeRoom
from clockgated.publish import Publisher
from clockgated.service.server import Api
from clockgated.serving import CALL_GRACE_S, Parts, Serving, planned, steers
from clockgated.signals import Signals
from clockgated.sources.kernel import read_look
from clockgated.steering.conductor import Conductor
from clockgated.steering.measuring import Hooks, open_measuring
from clockgated.steering.policies import lease_limits, state_policy
from clockgated.steering.prepare import Prepared
from clockgated.steering.signs import SignsOfLife
from clockgated.steering.steward import Steward
from clockgated.tuning_room import TuningRoom


def run(settings: Config, file: Path | None, notifier: systemd.Notifier) -> int:
    """Serve until told to stop; returns the exit code.

    Raises SocketError when the API cannot be served, ConfigError when the configuration allows no plan or another
    daemon uses the run folder.
    """
    descriptors.raise_limit()
    with closing(Signals()) as signals, closing(FolderClaim(Path(settings.folders.run))) as claim:
        prepared = planned(settings, signals)
        return (
            0
            if prepared is None
            else _served(settings, file, notifier, prepared=prepared, claim=claim, signals=signals)
        )


def _served(
    settings: Config,
    file: Path | None,
    notifier: systemd.Notifier,
    *,
    prepared: Prepared,
    claim: FolderClaim,
    signals: Signals,
) -> int:
    boot_id, policy = host.boot_id(), state_policy(settings)
    desk, board, signs = LeaseDesk(lease_limits(settings)), DrillBoard(), SignsOfLife()
    handover = Handover(settings.places)
    conductor = Conductor(Steward(settings.places, boot_id, signs, may_step=desk.may_step_clock, handover=handover))
    hooks = Hooks(signs, conductor.reasons, conductor.pid_of)
    measuring = open_measuring(settings, prepared, boot_id, hooks)
    kind = measuring.source.kind
    run_folder, state_folder = Path(settings.folders.run), Path(settings.folders.state)
    keeper = Keeper.of_folders(run_folder, state_folder, boot_id) if claim.is_held else None
    opening = keeper.open(kind, policy, read_look()) if keeper else None
    # Without a memory: seconds of uptime exceed every epoch of this boot, which rises by one in a cycle at most.
    now_boot_ns = host.boot_ns()
    track = opening.track if opening else start(kind, now_boot_ns, max(1, now_boot_ns // units.NS_PER_S))
    publisher = Publisher(reading_of(track, boot_id, policy))
    tuning, node = TuningRoom(settings, boot_id, publisher, desk), NodeRoom(settings, boot_id)
    # While no other thread makes files: the modes of its sockets come from the process's umask.
    epochs = (keeper.epochs,) if keeper else ()
    api = Api(settings.api, publisher, board, desk, *epochs, tuning=tuning.servicers, node=node.board)
    beats = Beats()
    sources = MetricSources(publisher, beats, conductor.children, desk, api.tallies, tuning.tally, node.board)
    metrics = MetricsRoom(sources)
    try:
        claim.insist()
        tuning.start()
        node.start()
        cycle = Cycle(
            source=measuring.source,
            publisher=publisher,
            drills=board,
            policy=policy,
            boot_id=boot_id,
            interval_s=settings.clock.poll_interval_s,
            opening=opening,
            keeper=keeper,
            desk=desk,
            own_steering=steers(prepared),
            step_needed_ns=round(settings.ntp.step_at_start_ms * units.NS_PER_MS),
            forget=measuring.forget,
            beats=beats,
        )
        narrator = Narrator(publisher.latest)
        parts = Parts(
            cycle, conductor, signs, hooks, desk, narrator, notifier, boot_id, api.lost, tuning, node, metrics
        )
        return Serving(settings, file, prepared, measuring, parts).until_told(signals)
    finally:
        metrics.stop()
        api.stop(CALL_GRACE_S)
        tuning.stop()
        node.stop()
