"""One checkpoint at a time written by a thread while training goes on; committed when all writers are done.

The queue holds a single save: the next one first waits for it. So at most one copy of the state is in memory, and a
disk that is too slow for the saves slows training down instead of filling the memory.
"""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar, cast

import torch

from clockgate_trainer.checkpoint.draft import Draft, Order, write_draft
from clockgate_trainer.checkpoint.state import TrainState

_Value = TypeVar("_Value")


class Background:
    """The save that is being written on this rank, if any. All ranks hold the same save at the same time."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._order: Order | None = None
        self._draft: Future[Draft] | None = None

    @property
    def order(self) -> Order | None:
        """The save under way; None without one."""
        return self._order

    def start(self, order: Order) -> None:
        """Begin to write `order`, which shares no memory with what is trained. Only without one under way."""
        if self._order is not None:
            raise RuntimeError(f"the save of step {self._order.state.step} is not committed yet: finish it first")
        self._order = order
        self._draft = self._thread.submit(write_draft, order)

    def written(self) -> bool:
        """Whether this rank has written its part of the save under way. Never blocks."""
        return self._draft is not None and self._draft.done()

    def take(self) -> tuple[Order, Draft]:
        """The save under way, which there is, and what was written, waiting for it; none is under way after that."""
        order, draft, self._order, self._draft = self._order, self._draft, None, None
        if order is None or draft is None:
            raise RuntimeError("no save is under way: ask for order first")
        return order, draft.result()


def copied(value: _Value) -> _Value:
    """A copy of a state in the CPU's memory that shares no tensor with it; of mappings the copy is a dict."""
    made: Any = value
    if isinstance(value, torch.Tensor):
        made = value.detach().to("cpu", copy=True)
    elif isinstance(value, TrainState):
        made = replace(
            value,
            optimizer_state=copied(value.optimizer_state),
            scheduler_state=copied(value.scheduler_state),
            rank_state=copied(value.rank_state),
        )
    elif isinstance(value, Mapping):
        made = {name: copied(item) for name, item in value.items()}
    elif isinstance(value, (list, tuple)):
        made = type(value)(copied(item) for item in value)
    return cast(_Value, made)
