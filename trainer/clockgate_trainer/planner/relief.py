"""By which flags a run that does not fit would take less memory, and how much. Pure."""

from collections.abc import Iterator
from dataclasses import replace

from clockgate_trainer.flags.table import Settings
from clockgate_trainer.planner.memory import GIB
from clockgate_trainer.planner.plan import lay_out
from clockgate_trainer.planner.shape import Shape


def relief(settings: Settings, shape: Shape, device_bytes: float | None) -> str:
    """Sentences: what a copy takes, and what it would take otherwise. `device_bytes` is None where it is not known."""
    ways = [
        f"{flags}: {_peak(changed, shape):.1f}" for flags, changed in _ways(settings) if _less(changed, settings, shape)
    ]
    room = "" if device_bytes is None else f", of {device_bytes / GIB:.1f} GiB that the device has"
    now = f"By plan's arithmetic a copy takes {_peak(settings, shape):.1f} GiB{room}."
    if not ways:
        return f"{now} Lower --source_max_len or --target_max_len, or take a device with more memory"
    return (
        f"{now} Less take, in GiB: {'; '.join(ways)}; or shorter --source_max_len and --target_max_len. --fp16 would "
        "save nothing over --bf16"
    )


def _ways(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """Changes of one flag each, the cheapest first."""
    rows = settings.per_device_train_batch_size
    if rows > 1:
        steps = settings.gradient_accumulation_steps * rows
        yield (
            f"--per_device_train_batch_size 1 --gradient_accumulation_steps {steps}",
            replace(settings, per_device_train_batch_size=1),
        )
    if not settings.gradient_checkpointing:
        yield "--gradient_checkpointing true", replace(settings, gradient_checkpointing=True)
    if not settings.bf16 and not settings.fp16:
        yield "--bf16", replace(settings, bf16=True)
    yield "--optim paged_adamw_8bit", replace(settings, optim="paged_adamw_8bit")
    if settings.full_finetune:
        yield "no --full_finetune but an adapter, with --bits 4", replace(settings, full_finetune=False, bits=4)
    elif settings.bits > 4:
        yield "--bits 4", replace(settings, bits=4)


def _less(changed: Settings, settings: Settings, shape: Shape) -> bool:
    return _peak(changed, shape) < 0.99 * _peak(settings, shape)


def _peak(settings: Settings, shape: Shape) -> float:
    """GiB of one copy."""
    parts, _ = lay_out(settings, shape, [float("inf")], ranks=1)
    return parts.total / GIB
