"""What a checkpoint holds beside the adapter."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class TrainState:
    """A run between two optimizer steps, as one rank sees it.

    `step` optimizer steps are done. `cursor` tells which rows are (whole numbers by name). `optimizer_state` and
    `scheduler_state` are equal on all ranks; `rank_state` is this rank's own, its random generators: tensors, bytes,
    numbers, strings, lists, tuples and mappings of those. `settings` is what must be equal for a resumed run to be
    bit-identical: values that JSON can hold.
    """

    step: int
    cursor: Mapping[str, int]
    world_size: int
    optimizer_state: Mapping[str, object]
    scheduler_state: Mapping[str, object]
    rank_state: Mapping[str, object]
    settings: Mapping[str, object]
