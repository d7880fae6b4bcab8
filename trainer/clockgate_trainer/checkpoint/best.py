"""`best.json`: which checkpoint has the best score so far. A pointer: the checkpoint itself is never copied or moved.

It names a folder, so a copy of the run folder keeps it. It is put in place by one rename, after the checkpoint that it
names and before any older one leaves.
"""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

from clockgate_trainer.checkpoint.fields import FieldError, Fields, parse_object
from clockgate_trainer.checkpoint.files import Files
from clockgate_trainer.checkpoint.layout import BEST_FILE, draft_path, step_in_name


@dataclass(frozen=True)
class Score:
    """How good the weights of a checkpoint are by `metric`."""

    metric: str
    value: float
    greater_is_better: bool = False


@dataclass(frozen=True)
class Best:
    """The content of best.json: `checkpoint` is the folder's name within the run folder."""

    checkpoint: str
    step: int
    metric: str
    value: float
    greater_is_better: bool


def read_best(files: Files, output_dir: Path) -> Best | None:
    """What best.json says; None when it is not there or cannot be understood: a pointer is no loss."""
    try:
        return _best(Fields(parse_object(files.read(output_dir / BEST_FILE))))
    except (OSError, FieldError):
        return None


def beats(score: Score, holder: Best | None) -> bool:
    """Whether `score` takes the place of `holder`, the standing best one (None: there is none). Pure.

    A score that is no number never does; one by another metric does, since the two do not compare.
    """
    if not math.isfinite(score.value):
        return False
    if holder is None or (holder.metric, holder.greater_is_better) != (score.metric, score.greater_is_better):
        return True
    return score.value > holder.value if score.greater_is_better else score.value < holder.value


def point_to(files: Files, checkpoint: Path, step: int, score: Score) -> None:
    """Make best.json beside `checkpoint` name it, durably. Raises OSError; best.json is then what it was before."""
    best = Best(checkpoint.name, step, score.metric, score.value, score.greater_is_better)
    target = checkpoint.with_name(BEST_FILE)
    draft = draft_path(target)
    files.write(draft, json.dumps(asdict(best), indent=2).encode() + b"\n")
    files.replace(draft, target)
    files.sync_folder(target.parent)


def _best(fields: Fields) -> Best:
    best = Best(
        checkpoint=fields.text("checkpoint"),
        step=fields.whole("step", low=0),
        metric=fields.text("metric"),
        value=fields.number("value"),
        greater_is_better=fields.truth("greater_is_better"),
    )
    fields.demand_no_more()
    if step_in_name(Path(best.checkpoint)) is None or "/" in best.checkpoint:
        fields.refuse("checkpoint", best.checkpoint, "the name of a checkpoint's folder")
    return best
