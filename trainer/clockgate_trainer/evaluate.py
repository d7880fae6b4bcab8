"""`clockgate-train evaluate`: how good weights are, or what ratings come to: one of two commands, by the first word."""

from collections.abc import Sequence

from clockgate_trainer.evaluation import ratings_command


def main(argv: Sequence[str]) -> int:
    """Evaluate what `argv`, which comes after the word evaluate, names; the exit code."""
    if argv[:1] == ["ratings"]:
        return ratings_command.main(argv[1:])
    # Takes seconds to import torch and its kin, which counting ratings does without.
    from clockgate_trainer import evaluate_weights  # noqa: PLC0415

    return evaluate_weights.main(argv)
