"""The words of tuning: what can be set, what a plan says about it, and what a check finds. Pure values.

Every value of a knob is text in the one spelling that `normal` gives, as the kernel's file or a netlink reader of ours
shows it: numbers decimal, several numbers with one space between them, switches "on" and "off". None is absent or
unknown, never zero. Plans are data: a second room carries them out.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Area(StrEnum):
    """What kind of thing a knob belongs to, and so who reads and writes it."""

    SYSCTL = "sysctl"
    """A file below /proc/sys; the key is dotted (net.ipv4.tcp_rmem)."""
    SYSFS = "sysfs"
    """A file below /sys; the key is its path below /sys."""
    IRQ = "irq"
    """Affinity of one interrupt; the key is the interrupt's action name (eth0-TxRx-3), never its number."""
    MTU = "mtu"
    """The MTU of a link, bytes; the key is "mtu"."""
    QDISC = "qdisc"
    """The queueing discipline of a link: its root, or all leaves of a default mq; the key is "root"."""
    RINGS = "rings"
    """Descriptor rings of a link; the key is "rx" or "tx"."""
    CHANNELS = "channels"
    """Queues of a link; the key is "combined", "rx" or "tx"."""
    EEE = "eee"
    """Energy-efficient Ethernet of a link; the key is "enabled"."""


class Risk(StrEnum):
    """What can go wrong when a change is made."""

    SOCKETS = "sockets"
    """Only sockets opened afterwards behave differently."""
    NODE = "node"
    """Everything on the node behaves differently at once; nothing is interrupted."""
    LINK = "link"
    """The link may be interrupted, or the node cut off: changed under commit-confirm."""


class OwnerKind(StrEnum):
    """Who holds a knob at present."""

    ADMIN_FILE = "admin_file"
    """A sysctl file below /etc or /run, or /etc/sysctl.conf: an administrator's word."""
    VENDOR_FILE = "vendor_file"
    """A sysctl file of a package, below /usr or /lib."""
    TUNED = "tuned"
    NETWORK_MANAGER = "network_manager"
    IRQBALANCE = "irqbalance"
    OTHER = "other"
    """A writer that could not be named: found by its effect."""


class RefusalCode(StrEnum):
    """Why something that a profile asks for is not in the changes."""

    CONFLICT = "conflict"
    """Somebody else owns it. Wait for them, or name the key in the profile's `override`."""
    UNSUPPORTED = "unsupported"
    """The kernel, the driver or this network namespace has no such thing, or takes no such value."""
    READ_ONLY = "read_only"
    """It is there and cannot be written from this namespace."""
    PENDING = "pending"
    """It is not there yet (a module not loaded); planned again later."""
    UNKNOWN_INPUT = "unknown_input"
    """A number that the rule needs could not be measured."""
    ERROR = "error"
    """The value found is none that the kernel should hold."""


class VerdictCode(StrEnum):
    """What a check finds about one knob that was set."""

    CLEAN = "clean"
    DRIFT = "drift"
    UNSUPPORTED = "unsupported"
    CONFLICT = "conflict"
    ERROR = "error"


class ExitCode(IntEnum):
    """Exit codes of `clockgatectl tune`."""

    CLEAN = 0
    DRIFT = 1
    UNSUPPORTED = 4
    CONFLICT = 5
    ERROR = 6


@dataclass(frozen=True)
class LinkId:
    """Which interface: names and indices change, the permanent address and the driver stay.

    `permanent_mac` is lower-case with colons; None for links that have none (veth, bonds): these are recognised by
    `ifindex` and `name` together, within one boot.
    """

    name: str
    ifindex: int
    permanent_mac: str | None = None
    driver: str | None = None


@dataclass(frozen=True)
class Knob:
    """Identity of one thing that can be set. `netns` is the inode of the network namespace that it was seen in."""

    netns: int
    area: Area
    key: str
    link: LinkId | None = None

    @property
    def subject(self) -> str:
        """How people name it: "net.ipv4.tcp_rmem", "eth0 channels.combined"."""
        if self.link is None or self.area is Area.SYSFS:
            return self.key  # the path has the link's name in it
        return f"{self.link.name} {self.area}" if self.key == self.area else f"{self.link.name} {self.area}.{self.key}"


@dataclass(frozen=True)
class Owner:
    """Who holds a knob: `place` is file:line, a profile's name or a unit; `value` what they want, None when unknown."""

    kind: OwnerKind
    place: str
    value: str | None = None


@dataclass(frozen=True)
class Input:
    """One number (or word) that went into a formula. `unit` is "" for plain counts and words."""

    name: str
    value: int | float | str
    unit: str = ""


@dataclass(frozen=True)
class Why:
    """A reason: one sentence, the formula as text (may be empty), and what went into it."""

    sentence: str
    formula: str = ""
    inputs: tuple[Input, ...] = ()


@dataclass(frozen=True)
class Counter:
    """One counter at the time of planning, the evidence for a change; not covered by a plan's hash."""

    name: str
    value: int


@dataclass(frozen=True)
class Change:
    """One thing to set. `needs_confirm`: undone by a timer outside the daemon unless reachability is proven after it.

    `new_connections_only`: sockets that are open keep what they have. `owner` is a package whose file sets another
    value at boot, or somebody whom the profile overrides.
    """

    knob: Knob
    found: str
    wanted: str
    why: Why
    risk: Risk
    resets_link: bool = False
    needs_confirm: bool = False
    new_connections_only: bool = False
    owner: Owner | None = None
    evidence: tuple[Counter, ...] = ()


@dataclass(frozen=True)
class Finding:
    """Something that is only reported: never changed, or fine as it is.

    `code` is a stable upper-case word for scripts. `needs_attention`: a person should look; `next_step` says where.
    """

    code: str
    subject: str
    why: Why
    needs_attention: bool = False
    next_step: str = ""
    evidence: tuple[Counter, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """Something that a rule asked for and that is not done. `knob` and `found` are None when there is no such thing."""

    code: RefusalCode
    subject: str
    why: Why
    next_step: str
    knob: Knob | None = None
    found: str | None = None
    wanted: str | None = None
    owner: Owner | None = None


@dataclass(frozen=True)
class BufferBound:
    """How much larger socket buffers can help one TCP flow over one link at best.

    `flow_bps` is what the present window allows, at most the link's rate; `gain` the largest factor that larger
    buffers can bring (1.0: none).
    """

    link: str
    link_bps: int
    rtt_us: int
    window_bytes: int
    flow_bps: int
    gain: float
    sentence: str


@dataclass(frozen=True)
class Plan:
    """Everything decided at one moment. `plan_hash` covers the knobs with found and wanted, nothing that counts up.

    `changes` are in the order in which they are to be carried out, undone in reverse. `as_of_boot_ns` is
    CLOCK_BOOTTIME under `boot_id`, read before the facts were.
    """

    plan_hash: str
    profile: str
    profile_why: str
    boot_id: str
    netns: int
    as_of_boot_ns: int
    changes: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    bounds: tuple[BufferBound, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What a check found about one knob that was set. `actual` None: it could not be read.

    `owner` names the other writer as far as it is known; `evidence` are the change's counters once more.
    """

    code: VerdictCode
    knob: Knob
    wanted: str
    actual: str | None
    detail: str = ""
    owner: Owner | None = None
    evidence: tuple[Counter, ...] = ()


def normal(text: str) -> str:
    """The one spelling of a value: no blanks around it, one space between its words (the kernel writes tabs)."""
    return " ".join(text.split())


_REFUSAL_EXITS = {
    RefusalCode.CONFLICT: ExitCode.CONFLICT,
    RefusalCode.ERROR: ExitCode.ERROR,
}
_VERDICT_EXITS = {
    VerdictCode.CLEAN: ExitCode.CLEAN,
    VerdictCode.DRIFT: ExitCode.DRIFT,
    VerdictCode.UNSUPPORTED: ExitCode.UNSUPPORTED,
    VerdictCode.CONFLICT: ExitCode.CONFLICT,
    VerdictCode.ERROR: ExitCode.ERROR,
}
# The gravest last. Drift before what nobody can help.
_BY_GRAVITY = (ExitCode.CLEAN, ExitCode.UNSUPPORTED, ExitCode.DRIFT, ExitCode.CONFLICT, ExitCode.ERROR)


def gravest(codes: list[ExitCode]) -> ExitCode:
    """The exit code that stands for all of `codes`; CLEAN for none."""
    return max(codes, key=_BY_GRAVITY.index, default=ExitCode.CLEAN)


def plan_exit(plan: Plan) -> ExitCode:
    """0 when there is nothing to do, 1 when changes are wanted, else what the gravest refusal says."""
    refused = [_REFUSAL_EXITS.get(refusal.code, ExitCode.UNSUPPORTED) for refusal in plan.refusals]
    return gravest(refused + ([ExitCode.DRIFT] if plan.changes else []))


def verify_exit(verdicts: tuple[Verdict, ...]) -> ExitCode:
    """The exit code of `tune verify`."""
    return gravest([_VERDICT_EXITS[verdict.code] for verdict in verdicts])
