"""How fast a run can be: a floor that no program passes, what is likely, and the exchange's share. Pure."""

from dataclasses import dataclass

from clockgate_trainer.planner.devices import Device
from clockgate_trainer.planner.memory import Micro, Precision
from clockgate_trainer.planner.shape import Shape

# Share of the data-sheet rate that large matrix products reach: 806 of 989 TFLOP/s on an H200 (8192 cubed, bfloat16).
_REACHED = 0.8
# Share of that which an eager loop reaches at 8,192 tokens in a micro-batch on an H200: 12.8k of 30.4k tokens/s.
_EAGER = 0.43
# Time to launch the kernels of one layer, forward and backward, by an eager loop on a server CPU; with checkpointing
# the forward runs twice (458 ms for 32 layers on an H200 machine, 512 tokens).
_LAUNCH_S = 0.0095
_LAUNCH_CHECKPOINTED_S = 0.0143
# A dequantised weight is written and read again by the matrix product.
_DEQUANTISED_BYTES = 2.5


@dataclass(frozen=True)
class Speed:
    """Seconds per optimizer step, and tokens a second of all ranks.

    `floor_s` comes from arithmetic alone; `likely_s` adds what an eager loop loses. `exchange_s` is the gradient
    all-reduce by itself and `exposed_share` the part of a likely step that it adds when backward cannot hide it.
    """

    floor_s: float
    likely_s: float
    exchange_s: float
    exposed_share: float
    tokens: int

    @property
    def floor_tokens_s(self) -> float:
        """No program passes this."""
        return self.tokens / self.floor_s

    @property
    def likely_tokens_s(self) -> float:
        """What to expect."""
        return self.tokens / self.likely_s


def flops_per_token(shape: Shape, adapter: int | None, *, checkpointing: bool, tokens: int) -> float:
    """Floating-point operations per token of a row of `tokens`.

    A frozen weight takes part in the forward and in the gradient of its input (2 each); a trained one also in its own
    (2 more), as all do when `adapter` is None; recomputation is another forward. Attention multiplies query by key and
    weights by value: 4 per hidden unit and position, half of them masked away.
    """
    passes = 3 if checkpointing else 2
    base = shape.linear_weights + shape.vocabulary * shape.hidden
    attention = shape.layers * 2 * shape.hidden * tokens
    trained = base if adapter is None else (passes + 1) * adapter
    return 2 * passes * base + 2 * trained + (passes + 1) * attention


def predict(
    shape: Shape,
    precision: Precision,
    device: Device,
    micro: Micro,
    *,
    flops_token: float,
    checkpointing: bool,
    accumulation: int,
    ranks: int,
    gradient_bytes: float,
    link_bytes_s: float,
) -> Speed:
    """Speed of one optimizer step of `accumulation` micro-batches on each of `ranks` ranks.

    A ring all-reduce sends 2 (n - 1) / n of the gradients over each link. It overlaps the backward of the last
    micro-batch, about half of a micro-batch's time.
    """
    arithmetic_s = micro.slots * flops_token / (device.bf16_flops * _REACHED)
    passes = 3 if checkpointing else 2
    dequantise_s = 0.0
    if precision.bits <= 8:
        dequantise_s = passes * shape.linear_weights * _DEQUANTISED_BYTES / device.memory_bytes_s
    launch_s = shape.layers * (_LAUNCH_CHECKPOINTED_S if checkpointing else _LAUNCH_S)
    floor_s = arithmetic_s + dequantise_s
    likely_s = max(arithmetic_s / _EAGER + dequantise_s, launch_s)
    exchange_s = 2 * (ranks - 1) / ranks * gradient_bytes / link_bytes_s
    exposed_s = max(0.0, exchange_s - likely_s / 2)
    step_s = accumulation * likely_s + exposed_s
    return Speed(
        floor_s=accumulation * floor_s,
        likely_s=step_s,
        exchange_s=exchange_s,
        exposed_share=exposed_s / step_s,
        tokens=micro.slots * accumulation * ranks,
    )
