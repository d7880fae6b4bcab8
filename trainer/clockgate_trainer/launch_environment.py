"""Which variables the ranks of a launch start with, decided from what this node has. Pure; `launch_facts` looks.

Guides hand down lists of exports. Of those, only what follows from facts is set here, and never over what a person or
nccl.conf has set. NCCL_ALGO, NCCL_PROTO and NCCL_IB_GID_INDEX are never set: the collectives choose better by
themselves (docs/decisions/0015).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_FORCED = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_IB_GID_INDEX")
_SOCKETS = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


@dataclass(frozen=True)
class LaunchFacts:
    """What is there when ranks are about to start.

    `endpoint_host` is where the nodes meet; `endpoint_interface` the one of this node that leads there, None where it
    is not known, "lo" where the host is a loopback address. `environment` and `nccl_conf` hold what a person has set.
    `active_hcas` are InfiniBand devices with an active port.
    """

    cores: int
    ranks_here: int
    nodes: int
    cuda: bool
    endpoint_host: str
    endpoint_interface: str | None
    interfaces: tuple[str, ...]
    active_hcas: tuple[str, ...] = ()
    nccl_conf: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """One variable to set, and why."""

    name: str
    value: str
    why: str

    def __str__(self) -> str:
        return f"{self.name}={self.value} ({self.why})"


@dataclass(frozen=True)
class LaunchEnvironment:
    """What to set, and what a person should know about what is set already."""

    settings: tuple[Setting, ...]
    warnings: tuple[str, ...]


def decide(facts: LaunchFacts) -> LaunchEnvironment:
    """The variables for the ranks of this node."""
    held = {*facts.environment, *facts.nccl_conf}
    settings = tuple(setting for setting in _wanted(facts) if setting.name not in held)
    return LaunchEnvironment(settings, tuple(_warnings(facts)))


def _wanted(facts: LaunchFacts) -> Iterator[Setting]:
    share = max(1, facts.cores // facts.ranks_here)
    # torchrun's default of 1 starves a run on CPUs; no limit overloads the machine.
    yield Setting("OMP_NUM_THREADS", str(share), f"{facts.cores} cores for {facts.ranks_here} ranks")
    if facts.cuda:
        yield Setting("NCCL_DEBUG", "WARN", "a failing collective then says why; INFO would fill the log")
    if facts.nodes == 1 or facts.endpoint_interface in (None, "lo"):
        return
    why = f"it leads to {facts.endpoint_host}, where the nodes meet"
    if facts.cuda:
        # Without the sign NCCL takes a name for a prefix: eth1 would match eth10 as well.
        yield Setting("NCCL_SOCKET_IFNAME", f"={facts.endpoint_interface}", why)
    # The vote and the meetings of ranks go over gloo on GPUs too.
    yield Setting("GLOO_SOCKET_IFNAME", f"{facts.endpoint_interface}", why)


def _warnings(facts: LaunchFacts) -> Iterator[str]:
    for name in _SOCKETS:
        value = facts.environment.get(name)
        if value is not None and not _matches_any(name, value, facts.interfaces):
            yield (
                f"{name} is {value} and this node has {', '.join(facts.interfaces)}: no rank will find an interface. "
                "Leave it out: launch sets it to the one that leads to the other nodes"
            )
    if facts.nodes > 1 and facts.endpoint_interface == "lo":
        yield (
            f"{facts.endpoint_host} is a loopback address here: nodes on other machines cannot meet there. Give an "
            "address of this node that they reach"
        )
    if facts.environment.get("NCCL_IB_DISABLE") == "1" and facts.active_hcas and facts.nodes > 1:
        yield (
            f"NCCL_IB_DISABLE=1 keeps gradients off {', '.join(facts.active_hcas)}, whose ports are active: leave it "
            "out unless that fabric is not to be used"
        )
    for name in _FORCED:
        if name in facts.environment:
            yield f"{name}={facts.environment[name]} overrides NCCL's own choice for every message size: leave it out"


def _matches_any(name: str, value: str, interfaces: tuple[str, ...]) -> bool:
    """Whether `value` leaves an interface: NCCL's are prefixes, exact after '=', left out after '^'."""
    if name == "GLOO_SOCKET_IFNAME":  # whole names
        return any(each in interfaces for each in value.split(","))
    excludes, text = value.startswith("^"), value.removeprefix("^")
    exact, text = text.startswith("="), text.removeprefix("=")
    named = [each for each in text.split(",") if each]
    hit = {face for face in interfaces for each in named if (face == each if exact else face.startswith(each))}
    return bool(set(interfaces) - hit) if excludes else bool(hit)
