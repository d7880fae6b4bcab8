"""A device or host that runs out of memory: noticed on one rank, told to all, met by smaller micro-batches.

Knows no model library. A shortage in a forward, or in a backward without exchange, can be told to the others; in a
backward that exchanges gradients it cannot, since they wait in the exchange.
"""

from collections.abc import Callable
from functools import partial

import torch

from clockgate_trainer.data.feed import Feed
from clockgate_trainer.data.order import Split
from clockgate_trainer.train.distributed import Meeting, SharedError
from clockgate_trainer.train.network import Network

# How allocators beside CUDA's own, and libraries, say it.
_SIGNS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def is_shortage(error: BaseException) -> bool:
    """Whether `error` says that memory is short, on a device or on the host."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(sign.lower() in str(error).lower() for sign in _SIGNS)


def fits(network: Network, work: Callable[[], object]) -> bool:
    """Do `work`, which exchanges nothing; false when memory ran short: gradients are dropped and memory given back."""
    try:
        work()
    except (RuntimeError, MemoryError) as error:
        if not is_shortage(error):
            raise
    else:
        return True
    # Only here, with the error and its frames gone, is what they held free.
    network.drop_gradients()
    network.give_memory_back()
    return False


def rehearse(
    network: Network,
    feed: Feed,
    split: Split,
    meeting: Meeting,
    *,
    may_shrink: bool,
    state_bytes: float,
    advise: Callable[[], str],
    say: Callable[[str, str], None],
) -> Split:
    """Forward and backward over the longest rows, thrown away; the split in which they fit on all ranks. A collective.

    It proves that the longest micro-batch fits beside an optimizer state of `state_bytes`, and makes DDP settle on its
    buckets: it regroups them after its first backward, which changes the order of sums from three ranks up, so without
    this a resumed run would sum its first step in another order than the run that it continues. Draws random numbers:
    seed or restore them afterwards. Raises SharedError when not even the smallest micro-batch fits.
    """
    while True:
        batch = feed.heaviest(split.micro_batch)
        fitting = meeting.gather(fits(network, partial(network.try_out, batch, state_bytes)))
        short = tuple(rank for rank, fitted in enumerate(fitting) if not fitted)
        if not short:
            break
        smaller = split.smaller() if may_shrink else None
        if smaller is None:
            raise SharedError(f"{shortage_of(short, split)}. {advise()}", ranks=short)
        say(
            f"{shortage_of(short, split)}: {in_pieces(smaller)} from the start, so a step has the same rows",
            "out_of_memory",
        )
        split = smaller
    if split.world > 1:
        network.backward(network.loss_sum(feed.heaviest(1)), 1)
        network.drop_gradients()
    return split


def shortage_of(ranks: tuple[int, ...], split: Split) -> str:
    """Who has too little memory for what; no ranks: it is not known who."""
    who = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}" if ranks else "a rank"
    rows = "1 row" if split.micro_batch == 1 else f"{split.micro_batch} rows"
    return f"{who}: a micro-batch of {rows} does not fit into memory"


def in_pieces(split: Split) -> str:
    """What a rank's share of a step is made of."""
    rows = "1 row" if split.micro_batch == 1 else f"{split.micro_batch} rows"
    return f"{split.accumulation} micro-batches of {rows}"
