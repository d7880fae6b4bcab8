"""The place of this rank among the ranks: device, process group, threads. Read from torchrun's environment.

Without that environment, or with one rank in it, the rank is alone and there is no process group.
"""

import datetime
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist

from clockgate_trainer.errors import ConfigError, PeerLostError
from clockgate_trainer.flags.table import Settings

_SIGNS_OF_A_LOST_PEER = ("gloo", "NCCL", "Connection closed by peer", "Connection reset", "Timed out")
# How many processes other launchers say that they have started, each of which would take itself for the only rank.
_OTHER_LAUNCHERS = (("SLURM_STEP_NUM_TASKS", "srun"), ("OMPI_COMM_WORLD_SIZE", "mpirun"), ("PMI_SIZE", "mpiexec"))
_WANTED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")

# Pieces that a slow network moves well within the patience of a meeting.
_PIECE_BYTES = 1 << 24

Told = TypeVar("Told")


@dataclass(frozen=True)
class Place:
    """Who this rank is."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int

    @property
    def alone(self) -> bool:
        """Whether there is no other rank."""
        return self.world_size == 1

    @property
    def leads(self) -> bool:
        """Whether this rank speaks for all."""
        return self.rank == 0


def read_place(environment: Mapping[str, str]) -> Place:
    """Read torchrun's variables. Raises ConfigError when some are missing or are no numbers, and when another launcher
    has started several processes that do not know of each other.
    """
    if "WORLD_SIZE" not in environment:
        _demand_to_be_alone(environment)
        return Place(0, 1, 0, 1)
    missing = [name for name in _WANTED if name not in environment]
    if missing:
        raise ConfigError(
            f"WORLD_SIZE is set but {', '.join(missing)} is not: start ranks with clockgate-train launch or torchrun"
        )
    rank, world_size, local_rank = (_number(environment, name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    local_world_size = _number(environment, "LOCAL_WORLD_SIZE") if "LOCAL_WORLD_SIZE" in environment else world_size
    if rank >= world_size:
        raise ConfigError(f"RANK is {rank}: wanted less than WORLD_SIZE, {world_size}")
    return Place(rank, world_size, local_rank, local_world_size)


def _demand_to_be_alone(environment: Mapping[str, str]) -> None:
    for name, launcher in _OTHER_LAUNCHERS:
        if environment.get(name, "1") not in ("1", ""):
            raise ConfigError(
                f"{launcher} has started {environment[name]} processes ({name}) and WORLD_SIZE is not set: each would "
                "train alone. Let it start one `clockgate-train launch` (or torchrun) per node, which starts the ranks"
            )
    if "ACCELERATE_MIXED_PRECISION" in environment and "MASTER_ADDR" in environment:
        # What accelerate does with --num_processes on a machine with fewer than two GPUs.
        raise ConfigError(
            "accelerate launch was asked for several processes and has started one: give it --multi_gpu, or use "
            "clockgate-train launch"
        )


def choose_device(wanted: str, place: Place) -> torch.device:
    """Device of this rank. Raises ConfigError when CUDA is asked for and is not there for this rank."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "cpu" or (wanted == "auto" and count == 0):
        return torch.device("cpu")
    if place.local_rank >= count:
        raise ConfigError(
            f"rank {place.rank} wants CUDA device {place.local_rank} and this machine has {count}: "
            "start fewer ranks per node, or give --device cpu"
        )
    return torch.device("cuda", place.local_rank)


def prepare_torch(settings: Settings, place: Place, device: torch.device) -> None:
    """Fix the number of threads (it changes the order of sums) and, if asked, deterministic kernels."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // place.local_world_size))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if settings.deterministic:
        # cuBLAS reads this when its first handle is made.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False


def join(settings: Settings, place: Place, device: torch.device) -> None:
    """Meet the other ranks; nothing when alone. Raises PeerLostError when they do not come in time."""
    if place.alone:
        return
    timeout = datetime.timedelta(seconds=settings.ddp_timeout)
    cuda = device.type == "cuda"
    try:
        dist.init_process_group("nccl" if cuda else "gloo", timeout=timeout, device_id=device if cuda else None)
    except dist.DistError as err:
        raise PeerLostError(
            f"rank {place.rank} waited {settings.ddp_timeout:g} s for all {place.world_size} ranks to start: {err}. "
            "Look at the other ranks' logs"
        ) from err


class SharedError(ConfigError):
    """A ConfigError that every rank raises at the same point, so that one rank can say it for all."""


class Meeting:
    """Where ranks tell each other small things, over a gloo group of its own.

    Making one and its methods are collectives: every rank does all, in the same order. They wait `patience_s` for the
    slowest rank, and raise PeerLostError when one is gone.
    """

    def __init__(self, place: Place, patience_s: float) -> None:
        self._place = place
        timeout = datetime.timedelta(seconds=patience_s)
        self._group = None if place.alone else dist.new_group(backend="gloo", timeout=timeout)

    def gather(self, told: Told) -> tuple[Told, ...]:
        """What every rank told, in the order of ranks."""
        heard: list[Told] = [told] * self._place.world_size
        if self._group is not None:
            with peers_needed():
                dist.all_gather_object(heard, told, group=self._group)
        return tuple(heard)

    def bring_to_first(self, told: object) -> list[object] | None:
        """What every rank told, in the order of ranks, on rank 0; None elsewhere."""
        if self._group is None:
            return [told]
        heard: list[object] | None = [None] * self._place.world_size if self._place.leads else None
        with peers_needed():
            dist.gather_object(told, heard, dst=0, group=self._group)
        return heard

    def spread(self, content: bytes | None, source: int, *, keep: bool = True) -> bytes | None:
        """What rank `source` gives, on every rank that wants to `keep` it (else None); None when it gives nothing.

        `content` counts on the source alone.
        """
        if self._group is None:
            return content
        with peers_needed():
            size = torch.tensor([-1 if content is None else len(content)])
            dist.broadcast(size, source, group=self._group)
            left = int(size)
            if left < 0:
                return None
            mine = memoryview(content or b"")
            pieces: list[bytes] = []
            for start in range(0, left, _PIECE_BYTES):
                length = min(_PIECE_BYTES, left - start)
                gives = self._place.rank == source
                piece = bytearray(mine[start : start + length]) if gives else bytearray(length)
                dist.broadcast(torch.frombuffer(piece, dtype=torch.uint8), source, group=self._group)
                if keep and not gives:
                    pieces.append(bytes(piece))
        return content if self._place.rank == source else b"".join(pieces) if keep else None


@contextmanager
def peers_needed() -> Iterator[None]:
    """Turn the many ways in which a collective tells that a rank is gone into PeerLostError."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as err:
        if isinstance(err, dist.DistError) or any(sign in str(err) for sign in _SIGNS_OF_A_LOST_PEER):
            # What follows the first sentence is advice of the library, on several lines.
            cause = str(err).splitlines()[0].split(". ")[0]
            raise PeerLostError(
                f"a rank was lost during an exchange: {cause}. Look at the other ranks' logs; the newest verified "
                "checkpoint stands: resume from it"
            ) from err
        raise


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment[name]
    if not text.isdecimal():
        raise ConfigError(f"{name} is {text!r}: wanted a whole number; torchrun sets it")
    return int(text)
