"""`clockgate-train evaluate ratings FILES`: what a judge's ratings of two systems come to."""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from clockgate_trainer.errors import ExitCode, TrainerError
from clockgate_trainer.evaluation.ratings import Order, Result, results_of
from clockgate_trainer.evaluation.ratings_file import read_match
from clockgate_trainer.tell import tell


def main(argv: Sequence[str]) -> int:
    """Count the files in `argv`, which comes after the word ratings; the exit code. Usage errors exit 2."""
    options = _parser().parse_args(list(argv))
    try:
        matches = [read_match(path, named_order=options.named_order) for path in options.files]
        results = results_of(matches, options.baseline)
    except TrainerError as err:
        tell(f"clockgate-train evaluate ratings: {err}")
        return err.exit_code
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=2))
    else:
        print("\n".join(line for result in results for line in _lines(result)))
    return ExitCode.DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="clockgate-train evaluate ratings",
        description="Counts ratings of two systems' answers: points as a share of a baseline's, or wins, losses and "
        "ties. Give the files of both orders: their results are averaged.",
        epilog="exit codes: 0 counted, 2 usage, 78 a file is not as wanted",
        allow_abbrev=False,
    )
    parser.add_argument(
        "files", metavar="FILE", type=Path, nargs="+", help="FIRST-vs-SECOND-REVIEWER-reviewer[-threeclass].jsonl"
    )
    parser.add_argument("--baseline", metavar="NAME", help="the system that the others are compared with")
    parser.add_argument(
        "--named-order",
        action="store_true",
        help="points are in the order of the names in the file's name; the published files have them in reverse",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON list, one object for each pair")
    return parser


def _lines(result: Result) -> Iterator[str]:
    if result.by_points:
        yield f"{result.system}: {result.value:.1%} of the points of {result.baseline}"
    else:
        yield f"{result.system}: wins {result.value:.1%} against {result.baseline}, ties counted half"
    yield from (f"  {_told(order)}" for order in result.orders)
    if len(result.orders) == 1:
        yield "  judged in one order only: a judge's liking for the first or the second place is in the figure"
    if result.unread:
        yield f"  reviews without a score, left out: {result.unread}"


def _told(order: Order) -> str:
    head = f"{order.shown_first} shown first: {order.value:.1%} ({order.questions} questions"
    return f"{head})" if order.wins is None else f"{head}: {order.wins} won, {order.losses} lost, {order.ties} ties)"
