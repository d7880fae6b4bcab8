"""manifest.json: what a checkpoint consists of and under which clocks it was made. Pure; no file, no clock.

The reader is strict: a manifest is either understood in full or refused with file and field named.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from clockgate_trainer.checkpoint.fields import FieldError, Fields, parse_object
from clockgate_trainer.checkpoint.files import FileDigest
from clockgate_trainer.checkpoint.layout import MANIFEST_FILE, STATE_FILES
from clockgate_trainer.errors import ConfigError

FORMAT_VERSION = 2
BASES = ("relative", "utc", "none")


class ManifestError(ConfigError):
    """A manifest that cannot be trusted: names the file and the field."""


@dataclass(frozen=True)
class AgreedTime:
    """One time for all ranks: the latest that it can have been at the save, ns since 1970 by the clock's reference.

    By that reference (UTC when `basis` is utc, else the one that all ranks share) the save was at `wall_ns` or up to
    2 x `bound_ns` before. `waited_out` tells that the checkpoint got its name after `wall_ns`, so that whoever finds
    it there and takes a stamp by the same reference gets a later one.
    """

    wall_ns: int
    bound_ns: int
    basis: str
    waited_out: bool


@dataclass(frozen=True)
class RankReading:
    """What one rank said of its clock in the vote that the save rests on. None where it could not tell.

    Verdicts by name; `reasons` are names of ReasonCode.
    """

    rank: int
    step_verdict: str
    save_verdict: str
    reasons: tuple[str, ...]
    relative_bound_ns: int | None
    utc_bound_ns: int | None
    reference_hash: int | None
    epoch: int | None


@dataclass(frozen=True)
class Disruption:
    """The continuity of one rank's clock broke since the last checkpoint: its epoch then, and at this one."""

    rank: int
    epoch_before: int
    epoch_now: int


@dataclass(frozen=True)
class AdapterRepair:
    """Just before this checkpoint `ranks` had other adapters and were given adapter and optimizer of `source_rank`."""

    source_rank: int
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Manifest:
    """A checkpoint's table of contents.

    `files` holds every file but the manifest by its path in the folder. Either `agreed_time` is there, or
    `agreed_time_absent_because` says why not and `unverified_wall_ns` is rank 0's raw CLOCK_REALTIME.
    `cluster_bound_ns` is the largest disagreement possible between two ranks' clocks, None when not knowable, from
    the bounds that `bound_basis` names. `disruptions` are those since the checkpoint before it in the run folder.
    """

    step: int
    world_size: int
    files: Mapping[str, FileDigest]
    adapter_sha256: str
    agreed_time: AgreedTime | None
    agreed_time_absent_because: str | None
    unverified_wall_ns: int | None
    cluster_bound_ns: int | None
    bound_basis: str
    readings: tuple[RankReading, ...]
    created_by: str
    disruptions: tuple[Disruption, ...] = ()
    adapter_repair: AdapterRepair | None = None


def content_id(manifest: Manifest) -> str:
    """One SHA-256, in hex, for what training goes on from: equal for two checkpoints that resume the same.

    The files beside adapter and state (a README, the adapter's configuration) are left out: nodes may word them
    differently.
    """
    states = [manifest.files[name].sha256 for name in STATE_FILES]
    content = [manifest.step, manifest.world_size, manifest.adapter_sha256, *states]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def to_json(manifest: Manifest) -> bytes:
    """The content of manifest.json."""
    content = {"format_version": FORMAT_VERSION, **asdict(manifest)}
    return json.dumps(content, indent=2, allow_nan=False).encode() + b"\n"


def from_json(content: bytes, name: str = MANIFEST_FILE) -> Manifest:
    """Read manifest.json; `name` is the file that errors speak of. Raises ManifestError on anything unexpected."""
    try:
        return _manifest(Fields(parse_object(content)))
    except FieldError as error:
        raise ManifestError(f"{name}: {error}; take another checkpoint") from error


def _manifest(fields: Fields) -> Manifest:
    version = fields.whole("format_version", low=0)
    if version != FORMAT_VERSION:
        fields.refuse("format_version", version, f"{FORMAT_VERSION}: made by another version of clockgate-train")
    manifest = Manifest(
        step=fields.whole("step", low=0),
        world_size=fields.whole("world_size", low=1),
        files=_files(fields),
        adapter_sha256=fields.sha256("adapter_sha256"),
        agreed_time=_agreed_time(fields),
        agreed_time_absent_because=fields.text_or_none("agreed_time_absent_because"),
        unverified_wall_ns=fields.whole_or_none("unverified_wall_ns"),
        cluster_bound_ns=fields.whole_or_none("cluster_bound_ns", low=0),
        bound_basis=fields.choice("bound_basis", BASES),
        readings=tuple(_reading(entry) for entry in fields.inners("readings")),
        created_by=fields.text("created_by"),
        disruptions=tuple(_disruption(entry) for entry in fields.inners("disruptions")),
        adapter_repair=_adapter_repair(fields),
    )
    fields.demand_no_more()
    _demand_sense(fields, manifest)
    return manifest


def _files(fields: Fields) -> dict[str, FileDigest]:
    files = {}
    table = fields.inner("files")
    for name in table.names():
        if not _is_plain_path(name):
            fields.refuse("files", name, "paths below the checkpoint's folder")
        entry = table.inner(name)
        files[name] = FileDigest(entry.sha256("sha256"), entry.whole("bytes", low=0))
        entry.demand_no_more()
    return files


def _is_plain_path(name: str) -> bool:
    return name != MANIFEST_FILE and name.isprintable() and not {"", ".", ".."} & set(name.split("/"))


def _agreed_time(fields: Fields) -> AgreedTime | None:
    entry = fields.inner_or_none("agreed_time")
    if entry is None:
        return None
    agreed = AgreedTime(
        wall_ns=entry.whole("wall_ns"),
        bound_ns=entry.whole("bound_ns", low=0),
        basis=entry.choice("basis", BASES[:2]),
        waited_out=entry.truth("waited_out"),
    )
    entry.demand_no_more()
    return agreed


def _disruption(entry: Fields) -> Disruption:
    disruption = Disruption(
        rank=entry.whole("rank", low=0),
        epoch_before=entry.whole("epoch_before", low=0),
        epoch_now=entry.whole("epoch_now", low=0),
    )
    entry.demand_no_more()
    return disruption


def _adapter_repair(fields: Fields) -> AdapterRepair | None:
    entry = fields.inner_or_none("adapter_repair")
    if entry is None:
        return None
    repair = AdapterRepair(source_rank=entry.whole("source_rank", low=0), ranks=entry.wholes("ranks", low=0))
    entry.demand_no_more()
    return repair


def _reading(entry: Fields) -> RankReading:
    reading = RankReading(
        rank=entry.whole("rank", low=0),
        step_verdict=entry.text("step_verdict"),
        save_verdict=entry.text("save_verdict"),
        reasons=entry.texts("reasons"),
        relative_bound_ns=entry.whole_or_none("relative_bound_ns", low=0),
        utc_bound_ns=entry.whole_or_none("utc_bound_ns", low=0),
        reference_hash=entry.whole_or_none("reference_hash", low=0),
        epoch=entry.whole_or_none("epoch", low=0),
    )
    entry.demand_no_more()
    return reading


def _demand_sense(fields: Fields, manifest: Manifest) -> None:
    """What fields must be to each other."""
    for name in STATE_FILES:
        if name not in manifest.files:
            fields.refuse("files", ", ".join(manifest.files), f"{name} among them")
    ranks = [reading.rank for reading in manifest.readings]
    if len(ranks) != manifest.world_size or ranks != list(range(len(ranks))):
        seen = f"of ranks {', '.join(map(str, ranks))}"
        fields.refuse("readings", seen, f"one for each of {manifest.world_size} ranks, in order")
    timed = manifest.agreed_time is not None
    if timed == (manifest.agreed_time_absent_because is not None):
        fields.refuse("agreed_time_absent_because", manifest.agreed_time_absent_because, "it or agreed_time, not both")
    if timed == (manifest.unverified_wall_ns is not None):
        fields.refuse("unverified_wall_ns", manifest.unverified_wall_ns, "it or agreed_time, not both")
    if (manifest.cluster_bound_ns is None) != (manifest.bound_basis == "none"):
        fields.refuse("bound_basis", manifest.bound_basis, "none exactly when cluster_bound_ns is null")
