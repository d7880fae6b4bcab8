"""Every optimizer name of transformers: what it stands for here, or why it is refused. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Optimizer:
    """AdamW of torch (`library` torch) or of bitsandbytes (bnb), with moments of `bits` bits.

    A `paged` one lends its state to the host when a GPU is short. A `fused` one updates all weights in one kernel.
    """

    library: str
    bits: int = 32
    paged: bool = False
    fused: bool = False

    @property
    def moments(self) -> float:
        """Bytes of optimizer state per trained parameter: two moments, and with 8 bits their scales per 256 values."""
        return 8.0 if self.bits == 32 else 2.0 + 2 * 4 / 256


OPTIMIZERS: Mapping[str, Optimizer] = {
    "paged_adamw_32bit": Optimizer("bnb", paged=True),
    "paged_adamw_8bit": Optimizer("bnb", bits=8, paged=True),
    "adamw_8bit": Optimizer("bnb", bits=8),
    "adamw_bnb_8bit": Optimizer("bnb", bits=8),
    "adamw_torch": Optimizer("torch"),
    "adamw_torch_fused": Optimizer("torch", fused=True),
}

_NO_PACKAGE = "it needs a package that is not part of this trainer; use adamw_torch"
_LION = "Lion wants another learning rate and decay than every recipe here; use paged_adamw_8bit for small state"
_PROJECTED = "it projects the gradients of whole weight matrices, which an adapter does not have; use adamw_8bit"
_NOT_ADAM = "the --adam_ flags and the recipes are for AdamW; use adamw_torch"
_OTHER_DEVICE = "it is for another kind of device than CPU and CUDA; use adamw_torch"

REFUSED_OPTIMIZERS: Mapping[str, str] = {
    "adamw_hf": "transformers has removed it; use adamw_torch",
    "adamw_apex_fused": "transformers has removed it; use adamw_torch_fused",
    "adamw_torch_xla": _OTHER_DEVICE,
    "adamw_torch_npu_fused": _OTHER_DEVICE,
    "adamw_anyprecision": _NO_PACKAGE,
    "adamw_torch_4bit": _NO_PACKAGE,
    "adamw_torch_8bit": f"{_NO_PACKAGE}, or adamw_8bit",
    "adafactor": _NOT_ADAM,
    "sgd": _NOT_ADAM,
    "adagrad": _NOT_ADAM,
    "rmsprop": _NOT_ADAM,
    "rmsprop_bnb": _NOT_ADAM,
    "rmsprop_bnb_8bit": _NOT_ADAM,
    "rmsprop_bnb_32bit": _NOT_ADAM,
    "ademamix": _NOT_ADAM,
    "ademamix_8bit": _NOT_ADAM,
    "paged_ademamix_32bit": _NOT_ADAM,
    "paged_ademamix_8bit": _NOT_ADAM,
    "lion_8bit": _LION,
    "lion_32bit": _LION,
    "paged_lion_32bit": _LION,
    "paged_lion_8bit": _LION,
    "galore_adamw": _PROJECTED,
    "galore_adamw_8bit": _PROJECTED,
    "galore_adafactor": _PROJECTED,
    "galore_adamw_layerwise": _PROJECTED,
    "galore_adamw_8bit_layerwise": _PROJECTED,
    "galore_adafactor_layerwise": _PROJECTED,
    "apollo_adamw": _PROJECTED,
    "apollo_adamw_layerwise": _PROJECTED,
    "lomo": "it updates weights within backward, before ranks have exchanged gradients; use adamw_8bit",
    "adalomo": "it updates weights within backward, before ranks have exchanged gradients; use adamw_8bit",
    "grokadamw": _NO_PACKAGE,
    "schedule_free_radam": _NO_PACKAGE,
    "schedule_free_adamw": _NO_PACKAGE,
    "schedule_free_sgd": _NO_PACKAGE,
    "stable_adamw": _NO_PACKAGE,
}
