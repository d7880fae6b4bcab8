"""From a plan to the programs that the supervisor runs. Pure."""

from collections.abc import Collection
from dataclasses import replace

from clockgated.manage.planned import Plan, PlannedDaemon
from clockgated.supervise.base import ChildSpec, digest_of
from clockgated.units import NS_PER_S

# Answers and lines come once a second; a busy host may be late, and a kill costs a restart.
_STALE_AFTER_NS = 10 * NS_PER_S
# phc2sys that chooses its clocks by itself prints nothing while no port is synchronised.
_SILENT_BY_NATURE = "-a"
# It has no interface for questions; one line a sample is all that it gives.
_NEVER_ASKED = "phc2sys@"


def specs_of(plan: Plan) -> tuple[ChildSpec, ...]:
    """One spec a daemon, in the order in which they start."""
    return tuple(_spec(plan, daemon) for daemon in plan.daemons)


def watched(specs: Collection[ChildSpec], answered: Collection[str], seen: Collection[str]) -> tuple[ChildSpec, ...]:
    """The specs, with silence held against those only that answered before; one that is never asked must have talked.

    One that never did may be well, and it is the asking that fails: killing it again and again would leave the clock
    to itself for nothing.
    """

    def is_known(spec: ChildSpec) -> bool:
        return spec.name in (seen if spec.name.startswith(_NEVER_ASKED) else answered)

    return tuple(spec if is_known(spec) else replace(spec, stale_after_ns=None) for spec in specs)


def _spec(plan: Plan, daemon: PlannedDaemon) -> ChildSpec:
    # A generated file belongs to the daemons that are started with its path.
    texts = (file.text for file in plan.files if file.path in daemon.argv)
    return ChildSpec(
        name=daemon.name,
        argv=daemon.argv,
        environment=daemon.environment,
        drop_clock_right=not daemon.needs_clock_right,
        unit=daemon.unit_name,
        files_digest=digest_of(texts),
        stale_after_ns=None if _SILENT_BY_NATURE in daemon.argv else _STALE_AFTER_NS,
        restart_argv=daemon.restart_argv,
        ready_paths=daemon.ready_when.paths,
        ready_after_ns=round(daemon.ready_when.within_s * NS_PER_S),
        stop_order=daemon.stop_order,
    )
