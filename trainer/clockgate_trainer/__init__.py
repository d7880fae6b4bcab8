"""clockgate-train: a QLoRA trainer whose gradient sync and checkpoint saves wait for one verdict of all ranks."""

__version__ = "0.1.0"
