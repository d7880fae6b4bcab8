"""What a person should change, or know, about a planned run. Pure."""

from clockgate_trainer.flags.optimizers import OPTIMIZERS
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.planner.layout import Layout, Parallelism
from clockgate_trainer.planner.memory import GIB, Micro

_SMALL_MICRO_BATCH = 2048


def advise(
    settings: Settings, layout: Layout, micro: Micro, *, ranks: int, unchecked_bytes: float, room: float
) -> list[str]:
    """Sentences, the most useful first. `unchecked_bytes`: a copy's peak without checkpointing; `room`: a device's."""
    found = []
    if layout.parallelism is Parallelism.NONE:
        found += _make_it_fit(settings, ranks)
    if settings.fp16:
        found.append(
            "--fp16 takes as much memory as --bf16 and is less stable: of 7B runs in 4 bits qlora.py's authors saw "
            "about 80 % finish; --bf16 needs no loss scale"
        )
    if not settings.bf16 and not settings.fp16:
        found.append(
            "without --bf16 the base computes in float32: several times slower, and activations take twice as much"
        )
    if settings.gradient_checkpointing and unchecked_bytes < 0.95 * room:
        found.append(
            f"it fits without checkpointing too ({unchecked_bytes / GIB:.1f} GiB): --gradient_checkpointing false "
            "saves a third of the arithmetic"
        )
    if micro.slots < _SMALL_MICRO_BATCH and settings.gradient_accumulation_steps > 1:
        found.append(
            f"micro-batches of {micro.slots} tokens leave the device waiting for kernel launches: raise "
            "--per_device_train_batch_size and lower --gradient_accumulation_steps by the same factor"
        )
    if settings.lora_dropout > 0 and not settings.full_finetune:
        found.append(
            f"--lora_dropout {settings.lora_dropout:g} keeps another input and a mask for every adapter; fused adapter "
            "kernels of other programs refuse it"
        )
    if settings.lr_scheduler_type == "constant":
        found.append("--lr_scheduler_type constant has no warm-up: --warmup_ratio has no effect, here as in qlora.py")
    if layout.parallelism is Parallelism.LAYERS:
        found.append(
            "with split layers there is one data-parallel rank: --per_device_train_batch_size is the batch of all "
            "devices"
        )
    return found


def _make_it_fit(settings: Settings, ranks: int) -> list[str]:
    ways = []
    if settings.full_finetune:
        ways.append("an adapter in place of --full_finetune, with --bits 4")
    elif settings.bits > 4:
        ways.append("--bits 4")
    if not settings.double_quant and settings.bits == 4:
        ways.append("--double_quant")
    if not settings.gradient_checkpointing:
        ways.append("--gradient_checkpointing")
    if settings.per_device_train_batch_size > 1:
        ways.append("a smaller --per_device_train_batch_size with more --gradient_accumulation_steps")
    if not settings.bf16 and not settings.fp16:
        ways.append("--bf16 (--fp16 would take as much memory and is less stable)")
    if OPTIMIZERS[settings.optim].bits == 32 and settings.full_finetune:
        ways.append("--optim adamw_8bit")
    if ranks > 1 and not settings.full_finetune:
        ways.append("one process per node with --device_map auto, which splits the layers")
    ways += ["shorter --source_max_len and --target_max_len", "devices with more memory"]
    return ["to make it fit, in this order: " + "; ".join(ways)]
