"""clockgate-train: a QLoRA trainer whose gradient sync and checkpoint saves wait for one verdict of all ranks.

For loops of one's own: `ClockGate` (needs torch.distributed alone) and `ClockGateCallback` (for transformers and TRL).
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = ["ClockGate", "ClockGateCallback", "Decision", "Kind", "SaveVerdict", "StepVerdict", "__version__"]

# A name is imported when it is asked for: help and flag errors do without torch and transformers.
_HOMES = {
    "ClockGate": "clockgate_trainer.gate.gate",
    "ClockGateCallback": "clockgate_trainer.callback",
    "Decision": "clockgate_trainer.gate.model",
    "Kind": "clockgate_trainer.gate.model",
    "SaveVerdict": "clockgate_trainer.gate.model",
    "StepVerdict": "clockgate_trainer.gate.model",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
