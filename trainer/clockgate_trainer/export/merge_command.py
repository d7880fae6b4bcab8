"""`clockgate-train merge`: an adapter merged into its base, as a plain model folder that transformers loads.

Weights are made one by one, so memory holds a shard of the result and no model; the comparison at the end loads the
model with its adapter, and then the merged one.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from transformers.utils import logging as transformers_logging

from clockgate_trainer.checkpoint.weights import find_weights, leading_path
from clockgate_trainer.errors import ConfigError, ExitCode, TrainerError, UsageError
from clockgate_trainer.export.build import Job, build, compare, prepare
from clockgate_trainer.export.compare import SAMPLES, Difference
from clockgate_trainer.export.write import demand_free, staged
from clockgate_trainer.figures import plain
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.interrupt import sigterm_interrupts
from clockgate_trainer.tell import tell

_TOO_FAR = 1
_INTERRUPTED = 130
_EVERY_WEIGHTS = 50
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def main(argv: Sequence[str]) -> int:
    """Merge as the command line `argv`, which comes after the word merge, says; the exit code."""
    path, words = leading_path(argv)
    options, rest = _parser().parse_known_args(words)
    options.adapter = path
    try:
        with sigterm_interrupts():
            return _merge(options, rest)
    except TrainerError as err:
        tell(f"clockgate-train merge: {err}")
        return err.exit_code
    except KeyboardInterrupt:
        tell("clockgate-train merge: interrupted; nothing was written")
        return _INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="clockgate-train merge",
        usage="%(prog)s PATH --output FOLDER [--best] [--base dequantised|full] [--dtype NAME] [--flag value ...]",
        description="Merges the adapter in PATH, which is a checkpoint, a run folder (its newest verified checkpoint) "
        "or an adapter of peft, into its base and writes a plain model folder.",
        epilog="takes the model flags of training as well; a checkpoint remembers its own. exit codes: 0 written, 1 "
        "the logits are further apart than --max_logit_diff, 2 usage, 78 no such weights",
        allow_abbrev=False,
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="the new model; must not be there")
    parser.add_argument("--best", action="store_true", help="of a run folder take the checkpoint that best.json names")
    parser.add_argument(
        "--base",
        choices=("dequantised", "full"),
        default="dequantised",
        help="add the adapter to the base as training held it (default), or to the weights on disk",
    )
    parser.add_argument(
        "--dtype", choices=("auto", *_DTYPES), default="auto", help="of the result; auto: as in the base's files"
    )
    parser.add_argument("--max_shard_size", default="5GB", metavar="SIZE", help="of a weight file (default: 5GB)")
    parser.add_argument("--max_logit_diff", type=float, metavar="X", help="write nothing when a logit moves further")
    parser.add_argument("--samples", type=Path, metavar="FILE", help="text to compare on, one sample per line")
    parser.add_argument("--skip_comparison", action="store_true", help="for a machine without memory for the models")
    parser.add_argument("--json", action="store_true", help="print the report as a JSON object")
    return parser


def _merge(options: argparse.Namespace, rest: Sequence[str]) -> int:
    if options.skip_comparison and options.max_logit_diff is not None:
        raise UsageError("--skip_comparison and --max_logit_diff are both given: wanted one of them")
    limit: float | None = options.max_logit_diff
    if limit is not None and not limit >= 0:
        raise UsageError(f"--max_logit_diff is {limit:g}: wanted a number, 0 or more")
    if options.adapter is None:
        raise UsageError("nothing to merge: the command begins with a checkpoint, a run folder or an adapter")
    parse(rest)
    demand_free(options.output)
    texts = SAMPLES if options.samples is None else _read_samples(options.samples)
    if not sys.stderr.isatty():
        transformers_logging.disable_progress_bar()
    weights = find_weights(options.adapter, best=options.best)
    if not weights.is_adapter:
        raise ConfigError(f"{weights.folder} holds a whole model: there is nothing to merge")
    for note in weights.notes:
        tell(f"clockgate-train: {note}")
    held = options.base == "dequantised"
    job = prepare(weights, parse([*weights.words, *rest]), held=held, dtype=_DTYPES.get(options.dtype))
    with staged(options.output) as stage:
        build(job, stage.folder, max_shard_size=options.max_shard_size, on_progress=_progress)
        found = None if options.skip_comparison else compare(job, stage.folder, texts)
        stage.keep = found is None or limit is None or found.largest <= limit
    _tell(options, job, found, written=stage.keep)
    if stage.keep:
        return ExitCode.DONE
    tell(f"clockgate-train merge: a logit moves by more than --max_logit_diff {limit:g}: nothing was written")
    return _TOO_FAR


def _progress(done: int, weights: int) -> None:
    if done % _EVERY_WEIGHTS == 0 or done == weights:
        tell(f"merged {done} of {weights} weights")


def _read_samples(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as err:
        raise UsageError(f"--samples {path} cannot be read: {err}") from err
    texts = tuple(line for line in lines if line.strip())
    if not texts:
        raise UsageError(f"--samples {path} has no text: wanted one sample per line")
    return texts


def _tell(options: argparse.Namespace, job: Job, found: Difference | None, *, written: bool) -> None:
    if options.json:
        told = {
            "output": str(options.output) if written else None,
            "adapter": str(job.weights.folder),
            "base": job.settings.model_name_or_path,
            "added_to": options.base,
            "device": str(job.merger.device),
            "logits": None if found is None else plain(asdict(found)),
        }
        print(json.dumps(told, indent=2))
        return
    if found is not None:
        print(
            f"logits of the adapter on its base and of the merged model, {found.tokens} tokens of text on "
            f"{job.merger.device}: largest difference {found.largest:.4g}, mean {found.mean:.4g} (a logit varies by "
            f"{found.spread:.3g}); the same likeliest token at {found.same_choice:.1%} of places"
        )
    if written:
        print(f"written: {options.output}")
