"""`metrics.json` in the run folder: the figures that a run ended with, by qlora.py's names."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

from clockgate_trainer.durable import write_json

FIGURES_FILE = "metrics.json"


def merge_figures(folder: Path, figures: Mapping[str, float]) -> None:
    """Put `figures` beside those that are there already, in place of those of the same names; NaN becomes null.

    Atomic and durable. A file that cannot be understood is replaced. Raises OSError.
    """
    path = folder / FIGURES_FILE
    try:
        before = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        before = {}
    kept = before if isinstance(before, dict) else {}
    write_json(path, {**kept, **plain(figures)}, indent=2)


def plain(figures: Mapping[str, float]) -> dict[str, float | None]:
    """Figures as JSON can say them: None for what is no number, or without end."""
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}
