"""Whose run folder is whose: which ranks share one, which of them write, and the checkpoint that all go on from."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from clockgate_trainer.checkpoint.files import HOST, Files
from clockgate_trainer.checkpoint.layout import checkpoint_path, mark_path
from clockgate_trainer.checkpoint.manifest import Manifest, content_id
from clockgate_trainer.checkpoint.resume import Found
from clockgate_trainer.checkpoint.transfer import give, receive, stand_by
from clockgate_trainer.checkpoint.verify import read_manifest
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.train.distributed import Meeting, Place
from clockgate_trainer.train.saving import find
from clockgate_trainer.train.start import together


@dataclass(frozen=True)
class Homes:
    """For each rank the lowest rank that sees the same run folder."""

    of_rank: tuple[int, ...]

    @property
    def writers(self) -> tuple[int, ...]:
        """The ranks that write, one for every folder, ascending; rank 0 is the first."""
        return tuple(sorted(set(self.of_rank)))

    @property
    def shared(self) -> bool:
        """Whether all ranks see one folder."""
        return self.writers == (0,)


@dataclass(frozen=True)
class Offer:
    """What is in a folder to go on from: a verified checkpoint and its content_id, or a problem, or nothing."""

    found: Found | None = None
    content: str | None = None
    problem: str | None = None


def find_homes(meeting: Meeting, place: Place, output_dir: Path, files: Files = HOST) -> Homes:
    """Find out which ranks share a run folder, by marks that they leave and look for. A collective.

    Marks are looked for by name, so that a network file system asks its server. Raises SharedError when a rank cannot
    write in its folder.
    """
    nonces = meeting.gather(secrets.token_hex(16))
    mine = mark_path(output_dir, nonces[place.rank])

    def leave_mark() -> bool:
        try:
            files.write(mine, b"")
        except OSError as error:
            raise ConfigError(
                f"--output_dir {output_dir} cannot be written ({error.strerror}: {error.filename}): give one that "
                "every node's first rank can write, or one that all share"
            ) from error
        return True

    def sees(rank: int) -> bool:
        try:
            files.size(mark_path(output_dir, nonces[rank]))
        except OSError:
            return False
        return True

    left = together(meeting, lambda: place.leads and leave_mark())
    with_first = meeting.gather(sees(0))
    apart = tuple(rank for rank, shares in enumerate(with_first) if not shares)
    left |= together(meeting, lambda: place.rank in apart and leave_mark())
    home = 0 if place.rank not in apart else next(rank for rank in apart if sees(rank))
    homes = Homes(meeting.gather(home))
    together(meeting, lambda: _remove(files, mine) if left else None)
    return homes


def find_together(settings: Settings, place: Place, meeting: Meeting, homes: Homes) -> Found | None:
    """The checkpoint that all ranks go on from, in this rank's own folder; None to start anew. A collective.

    Where nodes have folders of their own the newest that is whole on any of them is taken, and the nodes without it
    get it from one that has it. Raises SharedError.
    """
    if homes.shared:
        return meeting.gather(together(meeting, lambda: find(settings) if place.leads else None))[0]
    offers = meeting.gather(_offer(settings) if place.rank in homes.writers else Offer())
    source = together(meeting, lambda: choose_source({rank: offers[rank] for rank in homes.writers}))
    if source is None:
        return None
    chosen = offers[source]
    lacking = tuple(rank for rank in homes.writers if offers[rank].content != chosen.content)
    path = _bring(settings, place, meeting, offers, source=source, lacking=lacking)
    own_home = homes.of_rank[place.rank]
    own_path = meeting.gather(path)[own_home]
    own_found = offers[own_home].found
    if chosen.found is None or own_path is None:
        raise RuntimeError(f"rank {source} was chosen as the source of a checkpoint and has none")
    return replace(own_found or chosen.found, path=own_path, step=chosen.found.step)


def choose_source(offers: Mapping[int, Offer]) -> int | None:
    """The lowest rank that has the newest checkpoint; None to start anew. Pure.

    Raises ConfigError when two folders hold different checkpoints of that step, and when none can be gone on from but
    some folder has a problem.
    """
    found = {rank: offer.found for rank, offer in sorted(offers.items()) if offer.found is not None}
    if not found:
        problems = [f"rank {rank}: {offer.problem}" for rank, offer in sorted(offers.items()) if offer.problem]
        if problems:
            raise ConfigError("\n".join(problems))
        return None
    newest = max(one.step for one in found.values())
    holders = [rank for rank, one in found.items() if one.step == newest]
    odd = [rank for rank in holders if offers[rank].content != offers[holders[0]].content]
    if odd:
        raise ConfigError(
            f"the run folders of ranks {holders[0]} and {odd[0]} hold different checkpoints of step {newest}: they are "
            f"of different runs. Move one of them away: {found[holders[0]].path} or {found[odd[0]].path}"
        )
    return holders[0]


def _offer(settings: Settings) -> Offer:
    try:
        found = find(settings)
    except ConfigError as error:
        return Offer(problem=str(error))
    if found is None:
        return Offer()
    manifest = read_manifest(found.path, HOST)
    if not isinstance(manifest, Manifest):
        return Offer(problem=f"checkpoint {found.path} changed while it was read: {manifest}")
    return Offer(found, content_id(manifest))


def _bring(
    settings: Settings,
    place: Place,
    meeting: Meeting,
    offers: tuple[Offer, ...],
    *,
    source: int,
    lacking: tuple[int, ...],
) -> Path | None:
    """Send the checkpoint of `source` to the folders that lack it; its path in this rank's folder, on writers."""
    mine, chosen = offers[place.rank].found, offers[source].found
    if not lacking or chosen is None:
        return None if mine is None else mine.path
    problem: str | None = None
    path = None if mine is None else mine.path
    if place.rank == source:
        problem = give(HOST, chosen.path, meeting.spread, source)
    elif place.rank in lacking:
        path = checkpoint_path(settings.output_dir, chosen.step)
        problem = receive(HOST, path, meeting.spread, source)
    else:
        stand_by(meeting.spread, source)

    def demand_success() -> None:
        if problem is not None:
            raise ConfigError(f"the checkpoint of step {chosen.step} did not reach every node: {problem}")

    together(meeting, demand_success)
    return path


def _remove(files: Files, mark: Path) -> None:
    try:
        files.remove_file(mark)
    except OSError as error:
        raise ConfigError(f"{mark} cannot be removed ({error.strerror}): give another --output_dir") from error
