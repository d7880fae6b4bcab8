"""Which checkpoint a start goes on from, and what is in it.

The newest is the one with the highest step in its manifest, whatever the times of files say; it counts only when
every byte is as it was written.
"""

import io
import json
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from clockgate_trainer.checkpoint.fields import FieldError, Fields, parse_object
from clockgate_trainer.checkpoint.files import HOST, Files
from clockgate_trainer.checkpoint.layout import (
    OPTIMIZER_FILE,
    RANKS_FILE,
    SCHEDULER_FILE,
    TRAINER_STATE_FILE,
    step_in_name,
)
from clockgate_trainer.checkpoint.manifest import Manifest
from clockgate_trainer.checkpoint.publish import put_back, remove_leftovers
from clockgate_trainer.checkpoint.state import TrainState
from clockgate_trainer.checkpoint.verify import Problem, read_manifest, verify
from clockgate_trainer.errors import ConfigError

_AUTO = "auto"
_NONE = "none"
# Of settings that are no flag.
_HINTS = {"data": " (other rows, token limits, tokenizer, or number of rows held out for evaluation)"}
_ELSE = f"or start anew with --resume_from_checkpoint {_NONE} and another --output_dir"


@dataclass(frozen=True)
class Candidate:
    """A checkpoint that was looked at; without problems it is verified. `step` is the manifest's, else the name's."""

    path: Path
    step: int
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Found:
    """The verified checkpoint to go on from, and the newer ones that were passed over because they are broken."""

    path: Path
    step: int
    passed_over: tuple[Candidate, ...] = ()


def clean_staging(output_dir: Path, files: Files = HOST) -> tuple[Path, ...]:
    """Remove what a crash left half written or half removed; returns what is gone. Rank 0 calls it at the start.

    Raises ConfigError when the folder cannot be changed.
    """
    try:
        return remove_leftovers(files, output_dir)
    except OSError as error:
        raise _cannot_use(output_dir, error) from error


def find_resume(output_dir: Path, spec: str, files: Files = HOST) -> Found | None:
    """The checkpoint that `spec` (auto, none, or a path) means; None to start anew. Rank 0 decides for all ranks.

    Under auto a checkpoint that a crash left set aside gets its name back first. Raises ConfigError, with every
    problem named, when the path is not a verified checkpoint, and when auto finds checkpoints and all are broken:
    starting anew would throw away what they hold without a word.
    """
    if spec == _NONE:
        return None
    if spec != _AUTO:
        return _demand_verified(Path(spec), files)
    try:
        put_back(files, output_dir)
        found, broken = choose(_newest_first(output_dir, files))
    except OSError as error:
        raise _cannot_use(output_dir, error) from error
    if found is None and broken:
        raise ConfigError(
            f"no checkpoint in {output_dir} can be resumed from; restore one, {_ELSE}:\n{_listed(broken)}"
        )
    return None if found is None else Found(found.path, found.step, broken)


def choose(candidates: Iterable[Candidate]) -> tuple[Candidate | None, tuple[Candidate, ...]]:
    """The first of `candidates`, which come newest first, without problems, and those before it. Pure.

    Takes no more of them than it needs: a candidate costs reading its whole checkpoint.
    """
    passed_over: list[Candidate] = []
    for candidate in candidates:
        if not candidate.problems:
            return candidate, tuple(passed_over)
        passed_over.append(candidate)
    return None, tuple(passed_over)


def load(
    path: Path, rank: int, world_size: int, files: Files = HOST, *, allow_world_size_change: bool = False
) -> TrainState:
    """The state of `rank` in the verified checkpoint at `path`, tensors on the CPU.

    Raises ConfigError when it cannot be read, and when it was made by another number of ranks, unless that is allowed:
    then `world_size` is that of the checkpoint and `rank_state` is empty, for no rank goes on from another one's.
    """
    manifest = read_manifest(path, files)
    if isinstance(manifest, Problem):
        raise ConfigError(f"checkpoint {path} cannot be read: {manifest}; resume from another one, {_ELSE}")
    changed = manifest.world_size != world_size
    if changed and not allow_world_size_change:
        raise ConfigError(
            f"checkpoint {path} was saved at a world size of {manifest.world_size} and this run has {world_size}: "
            f"start {manifest.world_size} instead, or go on from the same row with --allow_world_size_change (a step "
            f"then takes other rows and other random numbers, so the run is not bit-identical to one that was never "
            f"stopped), {_ELSE}"
        )
    rank_states = _unpacked(path / RANKS_FILE, files).get("ranks")
    if not isinstance(rank_states, list) or len(rank_states) != manifest.world_size:
        raise ConfigError(
            f"{path / RANKS_FILE} does not hold the states of {manifest.world_size} ranks; take another, {_ELSE}"
        )
    step, cursor, settings = _trainer_state(path / TRAINER_STATE_FILE, files)
    return TrainState(
        step=step,
        cursor=cursor,
        world_size=manifest.world_size,
        optimizer_state=_unpacked(path / OPTIMIZER_FILE, files),
        scheduler_state=_unpacked(path / SCHEDULER_FILE, files),
        rank_state={} if changed else rank_states[rank],
        settings=settings,
    )


def newest_verified(output_dir: Path, files: Files = HOST) -> Found:
    """The newest checkpoint of a run folder that is as it was written. Changes nothing.

    Raises ConfigError when there is none.
    """
    try:
        found, broken = choose(_newest_first(output_dir, files))
    except OSError as error:
        raise _cannot_use(output_dir, error) from error
    if found is None:
        listed = f": the broken ones are\n{_listed(broken)}" if broken else ""
        raise ConfigError(f"{output_dir} holds no verified checkpoint{listed}")
    return Found(found.path, found.step, broken)


def demand_settings(state: TrainState, wanted: Mapping[str, object]) -> None:
    """Raise ConfigError that names every setting of `state` that differs from `wanted`, the ones of this run.

    Compared as JSON tells them, so a tuple equals the list that it was saved as.
    """
    now = json.loads(json.dumps(dict(wanted)))
    then = json.loads(json.dumps(dict(state.settings)))
    differing = [
        f"  {name}: {_told(then, name)} in the checkpoint, {_told(now, name)} now{_HINTS.get(name, '')}"
        for name in sorted(set(now) | set(then))
        if name not in now or name not in then or now[name] != then[name]
    ]
    if differing:
        listed = "\n".join(differing)
        raise ConfigError(
            f"the checkpoint of step {state.step} is of a run with other settings, so going on would not continue "
            f"it; give the old values, {_ELSE}:\n{listed}"
        )


def _newest_first(output_dir: Path, files: Files) -> Iterable[Candidate]:
    """All checkpoints, newest first by the manifests, each verified when it is taken."""
    manifests = {
        path: read_manifest(path, files) for path in files.list_folders(output_dir) if step_in_name(path) is not None
    }
    steps = {
        path: manifest.step if isinstance(manifest, Manifest) else step_in_name(path) or 0
        for path, manifest in manifests.items()
    }
    for path in sorted(steps, key=lambda path: (steps[path], path.name), reverse=True):
        yield Candidate(path, steps[path], verify(path, files))


def _demand_verified(path: Path, files: Files) -> Found:
    problems = verify(path, files)
    if problems:
        listed = _listed((Candidate(path, 0, problems),))
        raise ConfigError(f"{path} is not a verified checkpoint; name another one or auto, {_ELSE}:\n{listed}")
    manifest = read_manifest(path, files)
    if isinstance(manifest, Problem):
        raise ConfigError(f"checkpoint {path} changed while it was read: {manifest}; start again")
    return Found(path, manifest.step)


def _trainer_state(path: Path, files: Files) -> tuple[int, Mapping[str, int], Mapping[str, object]]:
    try:
        fields = Fields(parse_object(files.read(path)))
        cursor = fields.inner("cursor")
        return (
            fields.whole("step", low=0),
            {name: cursor.whole(name, low=0) for name in cursor.names()},
            fields.plain("settings"),
        )
    except (OSError, FieldError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); resume from another checkpoint, {_ELSE}") from error


def _unpacked(path: Path, files: Files) -> Mapping[str, object]:
    """The mapping that was packed into `path`. Only tensors and plain values are unpacked, no classes."""
    try:
        content = torch.load(io.BytesIO(files.read(path)), map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        cause = next(iter(str(error).splitlines()), type(error).__name__)
        raise ConfigError(f"{path} cannot be read ({cause}); resume from another checkpoint, {_ELSE}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} holds a {type(content).__name__}, wanted a mapping; take another, {_ELSE}")
    return content


def _cannot_use(output_dir: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"--output_dir {output_dir} cannot be used ({error.strerror}: {error.filename}): give one that this user can "
        "read and write"
    )


def _listed(broken: Iterable[Candidate]) -> str:
    return "\n".join(f"  {one.path}: {problem}" for one in broken for problem in one.problems)


def _told(settings: Mapping[str, object], name: str) -> str:
    return repr(settings[name]) if name in settings else "absent"
