"""The whole plan of a run as data, from its flags, the model's shape and the devices. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from clockgate_trainer.flags.memory_flags import read_max_memory
from clockgate_trainer.flags.modules import choice
from clockgate_trainer.flags.optimizers import OPTIMIZERS
from clockgate_trainer.flags.precision import compute_bytes, held_bits
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.planner.advice import advise
from clockgate_trainer.planner.devices import Device
from clockgate_trainer.planner.layout import Layout, Parallelism, choose, costs
from clockgate_trainer.planner.memory import DRIVER_BYTES, Micro, Parts, Precision, Trained, measure
from clockgate_trainer.planner.shape import Shape
from clockgate_trainer.planner.speed import Speed, flops_per_token, predict

_FLOAT32 = 4


@dataclass(frozen=True)
class Machines:
    """What a run has: `nodes` of `gpus` equal devices, `ranks` of them in all (1 may use several devices).

    `link_bytes_s` is the slowest link of a gradient exchange.
    """

    device: Device
    nodes: int
    gpus: int
    ranks: int
    link_bytes_s: float


@dataclass(frozen=True)
class RunPlan:
    """What `clockgate-train plan` says. `steps` is None when the length of the run follows from the data."""

    shape: Shape
    precision: Precision
    trained: Trained
    micro: Micro
    machines: Machines
    parts: Parts
    layout: Layout
    replicas: int
    rows_per_step: int
    steps: int | None
    speed: Speed
    advice: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether the run fits into its devices."""
        return self.layout.parallelism is not Parallelism.NONE


def precision_of(settings: Settings) -> Precision:
    """How the flags hold and compute the base."""
    return Precision(held_bits(settings), settings.double_quant, compute_bytes(settings))


def trained_by(settings: Settings, shape: Shape) -> Trained:
    """What the flags train: an adapter in float32, or the base as it is held."""
    optimizer, whole = OPTIMIZERS[settings.optim], settings.full_finetune
    held = held_bits(settings) // 8
    # torch keeps moments in the type of the weights, bitsandbytes in float32.
    in_weights_type = whole and optimizer.library == "torch"
    return Trained(
        parameters=shape.parameters if whole else shape.adapter(settings.lora_r, choice(settings.lora_modules)),
        adapter_rank=0 if whole else settings.lora_r,
        dropout=not whole and settings.lora_dropout > 0,
        optimizer_bits=optimizer.bits,
        paged=optimizer.paged,
        weight_bytes=held if whole else _FLOAT32,
        whole=whole,
        moments_bytes=2.0 * held if in_weights_type else optimizer.moments,
    )


def largest_micro_batch(settings: Settings) -> Micro:
    """A micro-batch whose longest row is as long as the flags allow."""
    row = settings.packed_tokens or settings.source_max_len + settings.target_max_len
    return Micro(settings.per_device_train_batch_size, row)


def budgets(settings: Settings, device: Device, count: int) -> tuple[float, ...]:
    """Bytes that the run may take on each of `count` devices: what --max_memory allows, else all but the driver's."""
    room = device.memory_bytes - DRIVER_BYTES
    if settings.max_memory is None:
        return (room,) * count
    allowed = read_max_memory(settings.max_memory)
    return tuple(min(room, allowed.get(number, room)) for number in range(count))


def lay_out(settings: Settings, shape: Shape, room: Sequence[float], *, ranks: int) -> tuple[Parts, Layout]:
    """What one copy takes at the largest micro-batch, and where it goes on devices that give `room` bytes each."""
    precision = precision_of(settings)
    parts = measure(
        shape,
        precision,
        trained_by(settings, shape),
        largest_micro_batch(settings),
        checkpointing=settings.gradient_checkpointing,
    )
    # All weights are trained as a whole copy.
    cost = None if settings.full_finetune else costs(shape, precision, parts)
    return parts, choose(cost, shape.layers, room, ranks=ranks, whole=parts.total)


def make_run_plan(settings: Settings, shape: Shape, machines: Machines) -> RunPlan:
    """Work everything out. Raises UsageError for a malformed --max_memory."""
    precision, trained = precision_of(settings), trained_by(settings, shape)
    micro = largest_micro_batch(settings)
    room = budgets(settings, machines.device, machines.gpus)
    parts, layout = lay_out(settings, shape, room, ranks=machines.ranks)
    replicas = 1 if layout.parallelism is Parallelism.LAYERS else machines.ranks
    flops = flops_per_token(
        shape,
        None if trained.whole else trained.parameters,
        checkpointing=settings.gradient_checkpointing,
        tokens=micro.tokens,
    )
    speed = predict(
        shape,
        precision,
        machines.device,
        micro,
        flops_token=flops,
        checkpointing=settings.gradient_checkpointing,
        accumulation=settings.gradient_accumulation_steps,
        ranks=replicas,
        gradient_bytes=parts.gradients,
        link_bytes_s=machines.link_bytes_s,
    )
    unchecked = measure(shape, precision, trained, micro, checkpointing=False).total
    return RunPlan(
        shape=shape,
        precision=precision,
        trained=trained,
        micro=micro,
        machines=machines,
        parts=parts,
        layout=layout,
        replicas=replicas,
        rows_per_step=micro.rows * settings.gradient_accumulation_steps * replicas,
        steps=settings.max_steps if settings.num_train_epochs is None else None,
        speed=speed,
        advice=tuple(advise(settings, layout, micro, ranks=machines.ranks, unchecked_bytes=unchecked, room=min(room))),
    )
