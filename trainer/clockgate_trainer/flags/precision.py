"""What --bits, --bf16, --fp16 and --full_finetune may say together. Pure."""

from collections.abc import Iterator
from typing import Protocol

from clockgate_trainer.errors import UsageError


class PrecisionFlags(Protocol):
    """The flags that decide how numbers are held."""

    @property
    def bits(self) -> int:
        """Of a base weight."""

    @property
    def bf16(self) -> bool:
        """Compute in bfloat16."""

    @property
    def fp16(self) -> bool:
        """Compute in float16."""

    @property
    def full_finetune(self) -> bool:
        """Train all weights."""

    @property
    def init_adapter(self) -> object:
        """Adapter to start from."""

    @property
    def modules_to_save(self) -> object:
        """Modules that are trained as a whole."""

    @property
    def use_dora(self) -> bool:
        """Kind of adapter."""

    @property
    def use_rslora(self) -> bool:
        """Kind of adapter."""


_OF_ADAPTERS = ("init_adapter", "modules_to_save", "use_dora", "use_rslora")


def compute_bytes(flags: PrecisionFlags) -> int:
    """Bytes of an activation."""
    return 2 if flags.bf16 or flags.fp16 else 4


def held_bits(flags: PrecisionFlags) -> int:
    """Bits of a base weight in a linear layer: 16 bits are those of the compute type, so without one they are 32."""
    return 32 if flags.bits == 16 and compute_bytes(flags) == 4 else flags.bits


def check_precision(flags: PrecisionFlags) -> None:
    """Refuse what contradicts itself. Raises UsageError."""
    if flags.bf16 and flags.fp16:
        raise UsageError("--bf16 and --fp16 are both given: wanted one of them; --bf16 does not overflow")
    if not flags.full_finetune:
        return
    if flags.bits not in (16, 32):
        raise UsageError(
            f"--full_finetune with --bits {flags.bits}: a quantised weight has no gradient. Give --bits 32 (float32 "
            "weights), or --bits 16 --bf16 (bfloat16 weights, a third less memory, small updates are lost)"
        )
    if flags.fp16 and flags.bits == 16:
        raise UsageError(
            "--full_finetune --bits 16 --fp16: gradients of float16 weights cannot be unscaled without overflow. Give "
            "--bits 32, which keeps float32 weights and computes in float16, or --bf16"
        )
    for name in _OF_ADAPTERS:
        if getattr(flags, name):
            raise UsageError(f"--{name} is about an adapter and --full_finetune trains none: leave one of them out")


def precision_notices(flags: PrecisionFlags) -> Iterator[str]:
    """What a person should know about them, one sentence each."""
    if flags.bits == 16 and compute_bytes(flags) == 4:
        yield "--bits 16 without --bf16 or --fp16 holds weights in float32, in which it computes, as qlora.py does"
    if flags.fp16:
        yield (
            "--fp16 saves no memory over --bf16 and is less stable: qlora.py's authors saw about 80 % of 7B runs "
            "finish; use --bf16 where the device has it"
        )
    if flags.full_finetune and flags.bits == 16 and flags.bf16:
        yield (
            "--full_finetune --bits 16 trains bfloat16 weights without float32 copies: an update below 1/256 of a "
            "weight is lost; --bits 32 keeps it"
        )
    if flags.full_finetune:
        yield "--full_finetune trains all weights: the --lora_ flags have no effect"
