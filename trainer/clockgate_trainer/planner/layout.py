"""Where a model goes: a whole copy on every rank's device, or its layers spread over the devices of one process. Pure.

A copy per rank keeps all devices busy all the time; with split layers one device works at a time. So layers are split
only where a whole copy does not fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from clockgate_trainer.planner.memory import Parts, Precision
from clockgate_trainer.planner.shape import Shape

# What an allocator loses between blocks of unequal size.
_SLACK = 1.04


class Parallelism(Enum):
    """How the ranks or devices share the work."""

    DATA = "data parallel"
    LAYERS = "layer split"
    NONE = "does not fit"


@dataclass(frozen=True)
class Layout:
    """`layers_on` counts the decoder layers of each device, `bytes_on` the memory wanted there; `why` is a sentence."""

    parallelism: Parallelism
    layers_on: tuple[int, ...]
    bytes_on: tuple[float, ...]
    why: str


@dataclass(frozen=True)
class Costs:
    """Bytes per decoder layer, and beside the layers on the first device (embedding) and the last (head, loss)."""

    layer: float
    first: float
    last: float


def costs(shape: Shape, precision: Precision, parts: Parts) -> Costs:
    """Split the memory of one copy into what each layer brings and what the two ends do.

    What works at one time (a layer, or the loss) is counted at both ends.
    """
    per_layer = (
        precision.linear_bytes(shape.layer_weights)
        + (parts.adapter + parts.gradients + parts.optimizer) / shape.layers
        + parts.activations / shape.layers
    )
    embedding = shape.embedding * precision.other_bytes
    head = shape.head * precision.other_bytes
    return Costs(per_layer, embedding + parts.working, head + parts.working)


def choose(cost: Costs | None, layers: int, budgets: Sequence[float], *, ranks: int, whole: float) -> Layout:
    """The layout on devices that have `budgets` bytes each.

    `ranks` above 1 asks for a copy per rank; one rank with several devices may split, unless `cost` is None. `whole` is
    one copy's peak.
    """
    needed = whole * _SLACK
    if needed <= min(budgets):
        return Layout(
            Parallelism.DATA,
            (layers,) * len(budgets),
            (needed,) * len(budgets),
            "a whole copy fits on every device, and copies keep all of them busy",
        )
    if cost is not None and ranks == 1 and len(budgets) > 1:
        found = spread(cost, layers, budgets)
        if found is not None:
            return Layout(
                Parallelism.LAYERS,
                found,
                _bytes_on(cost, found),
                "a whole copy does not fit on one device, so its layers are spread; one device works at a time",
            )
    why = "a whole copy does not fit, and is not split when all weights are trained"
    return Layout(Parallelism.NONE, (), (needed,), why if cost is None else "it fits neither whole nor split")


def spread(cost: Costs, layers: int, budgets: Sequence[float]) -> tuple[int, ...] | None:
    """Layers per device so that the fullest device is filled to the smallest share of its budget; None: no way.

    Layers stay in order, the embedding is with the first and the head with the last. Every device gets at least one
    layer. The share is found by bisection: more room never makes fewer layers fit.
    """
    if layers < len(budgets) or _fill(cost, layers, budgets, 1.0) is None:
        return None
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if _fill(cost, layers, budgets, middle) is None:
            low = middle
        else:
            high = middle
    return _fill(cost, layers, budgets, high)


def _fill(cost: Costs, layers: int, budgets: Sequence[float], share: float) -> tuple[int, ...] | None:
    """Fill devices one after the other up to `share` of their budget; None when layers are left over."""
    left, counts = layers, []
    for place, budget in enumerate(budgets):
        ends = (cost.first if place == 0 else 0.0) + (cost.last if place == len(budgets) - 1 else 0.0)
        room = int((budget * share / _SLACK - ends) // cost.layer)
        still_empty = len(budgets) - place - 1
        count = min(room, left - still_empty)
        if count < 1:
            return None
        counts.append(count)
        left -= count
    return tuple(counts) if left == 0 else None


def _bytes_on(cost: Costs, layers_on: Sequence[int]) -> tuple[float, ...]:
    last = len(layers_on) - 1
    return tuple(
        (count * cost.layer + (cost.first if place == 0 else 0.0) + (cost.last if place == last else 0.0)) * _SLACK
        for place, count in enumerate(layers_on)
    )
