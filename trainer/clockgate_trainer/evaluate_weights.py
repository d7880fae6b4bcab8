"""`clockgate-train evaluate PATH`: loss over held-out rows, and answers to multiple-choice questions, of weights.

A checkpoint of a run is held and computed as the run did, so its figures are those that the run itself would give.
"""

import argparse
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from transformers.utils import logging as transformers_logging

from clockgate_trainer.checkpoint.weights import Weights, find_weights
from clockgate_trainer.errors import ExitCode, TrainerError, UsageError
from clockgate_trainer.export.reload import load_trained
from clockgate_trainer.figures import plain
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.interrupt import sigterm_interrupts
from clockgate_trainer.tell import tell
from clockgate_trainer.train.corpus import load_unseen
from clockgate_trainer.train.distributed import Place, choose_device
from clockgate_trainer.train.exam import Figures, Task, make_tasks
from clockgate_trainer.train.precision import compute_dtype
from clockgate_trainer.train.scorer import Scorer

_INTERRUPTED = 130
_TOLD_EVERY_S = 5.0


def main(argv: Sequence[str]) -> int:
    """Evaluate the weights that `argv` names; the exit code. Usage errors exit 2."""
    words = list(argv)
    # Only the first word can be the path: behind it a word that follows a flag is the flag's value.
    path = Path(words.pop(0)) if words and not words[0].startswith("-") else None
    options, rest = _parser().parse_known_args(words)
    logging.getLogger().setLevel(logging.WARNING)
    try:
        weights, settings = _what(path, options, rest)
        with sigterm_interrupts():
            figures = _evaluate(weights, settings)
    except TrainerError as err:
        tell(f"clockgate-train evaluate: {err}")
        return err.exit_code
    except KeyboardInterrupt:
        tell("clockgate-train evaluate: interrupted")
        return _INTERRUPTED
    subject = settings.model_name_or_path if weights is None else str(weights.folder)
    if options.json:
        told = {"weights": subject, "model": settings.model_name_or_path, **plain(figures)}
        print(json.dumps(told, indent=2))
    else:
        print("\n".join((subject, *_lines(figures))))
    return ExitCode.DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="clockgate-train evaluate",
        usage="clockgate-train evaluate [PATH] [--best] [--json] [--flag value ...]",
        description="PATH is a checkpoint, a run folder (its newest verified checkpoint counts), an adapter or a "
        "model; without it --model_name_or_path alone is evaluated. Computes the loss over rows that were not trained "
        "on, and the share of multiple-choice questions answered right. clockgate-train evaluate ratings FILE... "
        "counts a judge's ratings instead.",
        epilog="takes the model, data and evaluation flags of training as well: --eval_dataset FILE, or --dataset FILE "
        "--eval_dataset_size N for the rows that training held out; --do_mmlu_eval --mmlu_dataset FILE. exit codes: "
        "0 evaluated, 2 usage, 78 weights or data",
        allow_abbrev=False,
    )
    parser.add_argument("--best", action="store_true", help="of a run folder take the checkpoint that best.json names")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _what(path: Path | None, options: argparse.Namespace, rest: Sequence[str]) -> tuple[Weights | None, Settings]:
    """The weights and the settings: what is given wins over what the weights remember of their base."""
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UsageError("evaluate runs as one process: start it without launch; ranks share evaluations in training")
    given = {word[2:].partition("=")[0] for word in rest if word.startswith("--")}
    parse(rest)
    if path is None:
        if options.best or "model_name_or_path" not in given:
            raise UsageError("nothing to evaluate: name a checkpoint, a run folder, an adapter or --model_name_or_path")
        weights = None
    else:
        weights = find_weights(path, best=options.best)
        for note in weights.notes:
            tell(f"clockgate-train: {note}")
    settings = parse([*(() if weights is None else weights.words), *rest])
    if given & {"dataset", "eval_dataset"}:
        settings = replace(settings, do_eval=True)
    if not settings.evaluates:
        raise UsageError(
            "nothing to evaluate on: give --eval_dataset FILE, --dataset FILE with --eval_dataset_size N, or "
            "--do_mmlu_eval"
        )
    return weights, settings


def _evaluate(weights: Weights | None, settings: Settings) -> Figures:
    with _token_folder(settings) as placed:
        unseen, notes = load_unseen(placed)
        for note in notes:
            tell(f"clockgate-train: {note}")
        tasks = make_tasks(placed, unseen)
        if not sys.stderr.isatty():
            transformers_logging.disable_progress_bar()
        device = choose_device(settings.device, Place(0, 1, 0, 1))
        adapter = weights.folder if weights is not None and weights.is_adapter else None
        model = load_trained(settings, device, adapter)
        # As in a run: 4-bit layers that are set to inference compute by other kernels on some CPUs.
        model.train()
        scorer = Scorer(model, device, compute=compute_dtype(settings))
        started_ns = time.monotonic_ns()
        figures: Figures = {}
        with scorer.evaluating():
            for task in tasks:
                figures |= task.sum_up(list(_marks(task, scorer)))
        return {**figures, "eval_duration_ns": time.monotonic_ns() - started_ns}


@contextmanager
def _token_folder(settings: Settings) -> Iterator[Settings]:
    """Settings with a folder for tokens; one that nobody named is gone afterwards."""
    if settings.token_cache is not None:
        yield settings
        return
    with tempfile.TemporaryDirectory(prefix="clockgate-evaluate-") as folder:
        yield replace(settings, token_cache=Path(folder))


def _marks(task: Task, scorer: Scorer) -> Iterator[float]:
    told_at = time.monotonic() + _TOLD_EVERY_S
    for done, rows in enumerate(task.batches, start=1):
        yield from task.mark(scorer, rows)
        if time.monotonic() > told_at:
            tell(f"{task.name}: {done} of {len(task.batches)} batches")
            told_at = time.monotonic() + _TOLD_EVERY_S


def _lines(figures: Mapping[str, float]) -> Iterator[str]:
    if "eval_loss" in figures:
        yield (
            f"  eval loss {figures['eval_loss']:.4f} over {figures['eval_tokens']:,.0f} tokens of "
            f"{figures['eval_rows']:,.0f} rows"
        )
    for name, value in figures.items():
        if "_accuracy" in name:
            overall = name.endswith("_accuracy")
            asked = f", the mean over subjects of {figures['mmlu_questions']:,.0f} questions" if overall else ""
            yield f"  {'' if overall else '  '}{name} {value:.1%}{asked}"
