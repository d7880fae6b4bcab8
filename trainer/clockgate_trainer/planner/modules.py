"""From layers per device to a device per module. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Modules:
    """Names of a model's parts: `layers` in order, `embedding`, and `others` outside of both (norm, head, rotary).

    `tied_head` is the name of the head when it shares the embedding's weights, else None.
    """

    layers: tuple[str, ...]
    embedding: str
    others: tuple[str, ...]
    tied_head: str | None


def device_map(modules: Modules, layers_on: Sequence[int]) -> Mapping[str, int]:
    """A device number for each module: the embedding with the first layers, all others with the last ones.

    A head that shares the embedding's weights must be where they are.
    """
    last = len(layers_on) - 1
    found = {modules.embedding: 0}
    numbers = [number for number, count in enumerate(layers_on) for _ in range(count)]
    found |= dict(zip(modules.layers, numbers, strict=True))
    found |= dict.fromkeys(modules.others, last)
    if modules.tied_head is not None:
        found[modules.tied_head] = 0
    return found
