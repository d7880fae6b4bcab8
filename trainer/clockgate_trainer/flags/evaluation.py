"""When and on what a run is evaluated: flags of qlora.py and transformers, and how they act together. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clockgate_trainer.errors import UsageError
from clockgate_trainer.flags.flag import declare

GROUP = "evaluation"
HELD_OUT_ROWS = 1024
TRAIN_LOSS, EVAL_LOSS = "train_loss", "eval_loss"
MMLU_NAMES = ("mmlu-fs", "mmlu-zs", "mmlu")
_MMLU_METRICS = ("mmlu_accuracy", "mmlu_eval_accuracy", "mmlu_test_accuracy", "eval_mmlu_accuracy")


@dataclass(frozen=True)
class EvaluationFlags:
    """The evaluation flags of `Settings`, which has them all."""

    do_eval: bool = declare(False, GROUP, "evaluate after the last step (--eval_strategy does so too)")
    eval_strategy: str = declare(
        "no",
        GROUP,
        "evaluate during training: every --eval_steps, or after every pass",
        choices=("no", "steps", "epoch"),
    )
    eval_steps: float | None = declare(
        None,
        GROUP,
        "steps between two evaluations; below 1: that share of all steps",
        low=1e-9,
        high=1e9,
        unset="--logging_steps",
    )
    eval_on_start: bool = declare(False, GROUP, "evaluate before the first step too")
    eval_delay: float = declare(
        0.0, GROUP, "no evaluation before so many steps (passes, with --eval_strategy epoch)", low=0, high=1e9
    )
    eval_dataset: str | None = declare(
        None, GROUP, "rows to evaluate on: a file, a known set or a hub id", unset="rows held out of --dataset"
    )
    eval_dataset_size: int | None = declare(
        None,
        GROUP,
        "hold N rows out of training, the ones that qlora.py would evaluate on",
        low=0,
        unset=f"{HELD_OUT_ROWS} when rows are evaluated, else none",
    )
    max_eval_samples: int | None = declare(None, GROUP, "evaluate on the first N of them", low=1, unset="all")
    per_device_eval_batch_size: int = declare(8, GROUP, "rows per rank that are evaluated at once", low=1)
    do_predict: bool = declare(
        False, GROUP, "after the last step answer the rows that are not trained on, into predictions.jsonl"
    )
    predict_with_generate: bool = declare(False, GROUP, "--do_predict always generates; without it this has no effect")
    load_best_model_at_end: bool = declare(
        False,
        GROUP,
        "evaluate at every save, and end with the weights of the best checkpoint (best.json names it either way)",
    )
    metric_for_best_model: str | None = declare(
        None,
        GROUP,
        "what best.json goes by",
        choices=("loss", EVAL_LOSS, TRAIN_LOSS, *_MMLU_METRICS),
        unset="eval_loss with --eval_strategy, else train_loss",
    )
    greater_is_better: bool | None = declare(
        None, GROUP, "follows from the metric; one that contradicts it is refused", unset="true for accuracy"
    )
    do_mmlu_eval: bool = declare(False, GROUP, "answer multiple-choice questions at every evaluation")
    mmlu_split: str = declare("eval", GROUP, "which questions of a named set", choices=("eval", "test"))
    mmlu_dataset: str = declare(
        "mmlu-fs", GROUP, "mmlu-fs (five examples before a question), mmlu-zs (none), or a file with input and output"
    )
    max_mmlu_samples: int | None = declare(None, GROUP, "the first N questions only", low=1, unset="all")
    mmlu_source_max_len: int = declare(
        2048, GROUP, "questions are cut to N tokens, from their beginning, so that the question stays", low=2
    )

    @property
    def wants_rows(self) -> bool:
        """Whether rows that are not trained on are read."""
        return self.scores_rows or self.do_predict

    @property
    def scores_rows(self) -> bool:
        """Whether the loss over held-out rows is computed."""
        return self.do_eval or self.eval_strategy != "no"

    @property
    def evaluates(self) -> bool:
        """Whether anything is evaluated."""
        return self.scores_rows or self.do_mmlu_eval

    @property
    def held_out_rows(self) -> int:
        """Rows of --dataset to hold out of training; those of --eval_dataset are others anyway."""
        if self.eval_dataset_size is not None:
            return self.eval_dataset_size
        return HELD_OUT_ROWS if self.wants_rows and self.eval_dataset is None else 0

    @property
    def best_metric(self) -> str:
        """Name of the figure that best.json goes by."""
        wanted = self.metric_for_best_model
        if wanted in _MMLU_METRICS:
            return f"mmlu_{self.mmlu_split}_accuracy"
        if wanted == "loss":
            return EVAL_LOSS if self.scores_rows else TRAIN_LOSS
        if wanted is None:
            chosen = self.eval_strategy != "no" or (self.load_best_model_at_end and self.scores_rows)
            return EVAL_LOSS if chosen else TRAIN_LOSS
        return wanted

    @property
    def best_is_greatest(self) -> bool:
        """Whether the best checkpoint is the one with the largest figure."""
        return self.best_metric.endswith("accuracy")


def check_evaluation(flags: EvaluationFlags) -> None:
    """Refuse what contradicts itself. Raises UsageError."""
    steps = flags.eval_steps
    if steps is not None and steps > 1 and steps != int(steps):
        raise UsageError(f"--eval_steps is {steps:g}: wanted a whole number of steps, or a share below 1")
    metric = flags.best_metric
    if metric == EVAL_LOSS and not flags.scores_rows:
        raise UsageError(
            f"--metric_for_best_model is {flags.metric_for_best_model}, which nothing computes: add --do_eval or "
            "--eval_strategy steps"
        )
    if flags.best_is_greatest and not flags.do_mmlu_eval:
        raise UsageError(
            f"--metric_for_best_model is {flags.metric_for_best_model}, which nothing computes: add --do_mmlu_eval"
        )
    if flags.greater_is_better is not None and flags.greater_is_better != flags.best_is_greatest:
        better = "greater" if flags.best_is_greatest else "smaller"
        raise UsageError(
            f"--greater_is_better is {str(flags.greater_is_better).lower()}: of {metric} a {better} value is better; "
            "leave it out, or give another --metric_for_best_model"
        )


def evaluation_notices(flags: EvaluationFlags) -> Iterator[str]:
    """Flags that are given and change nothing, one sentence each."""
    defaults = EvaluationFlags()

    def given(*names: str) -> list[str]:
        return [name for name in names if getattr(flags, name) != getattr(defaults, name)]

    if flags.eval_strategy != "steps":
        yield from (f"--{name} has no effect without --eval_strategy steps" for name in given("eval_steps"))
    if flags.eval_strategy == "no":
        yield from (f"--{name} has no effect without --eval_strategy" for name in given("eval_delay"))
    if not flags.evaluates:
        names = given("eval_on_start", *(() if flags.do_predict else ("per_device_eval_batch_size",)))
        yield from (f"--{name} has no effect without --do_eval or --do_mmlu_eval" for name in names)
    if not flags.do_predict:
        names = given("predict_with_generate")
        yield from (f"--{name} has no effect without --do_predict" for name in names)
    if not flags.wants_rows:
        names = given("eval_dataset", "max_eval_samples")
        yield from (f"--{name} has no effect without --do_eval" for name in names)
    if not flags.do_mmlu_eval:
        names = given("mmlu_split", "mmlu_dataset", "max_mmlu_samples", "mmlu_source_max_len")
        yield from (f"--{name} has no effect without --do_mmlu_eval" for name in names)


def mmlu_file(name: str, split: str) -> Path:
    """Where a checkout of qlora.py has the named set, below the working folder."""
    shots = "zero" if name == "mmlu-zs" else "five"
    return Path("data/mmlu") / f"{shots}_shot_mmlu_{'val' if split == 'eval' else 'test'}.json"
