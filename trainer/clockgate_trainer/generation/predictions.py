"""Predictions of a run: which part of a row is asked, and how predictions are written and counted. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clockgate_trainer.data.tokens import TokenRow
from clockgate_trainer.generation.answer import Answer

PREDICTIONS_FILE = "predictions.jsonl"


@dataclass(frozen=True)
class Prediction:
    """What one row asks, what it teaches, and what the model answered."""

    prompt: str
    wanted: str
    answer: Answer


def parted(row: TokenRow) -> tuple[list[int], list[int]]:
    """The token ids that are asked and those that would be right: of several answers in a row the last one."""
    learned = np.asarray(row.learned)
    starts = np.flatnonzero(learned & ~np.concatenate(([False], learned[:-1])))
    start = int(starts[-1])
    ids = row.input_ids.tolist()
    rest = np.flatnonzero(~learned[start:])
    end = start + int(rest[0]) if len(rest) else len(ids)
    return ids[:start], ids[start:end]


def lines_of(predictions: Sequence[Prediction]) -> bytes:
    """predictions.jsonl, by qlora.py's names: one object for each row."""
    return b"".join(
        json.dumps(
            {
                "input": one.prompt,
                "output": one.wanted,
                "prediction_with_input": one.answer.with_prompt,
                "prediction": one.answer.text,
            },
            ensure_ascii=False,
        ).encode("utf-8", "backslashreplace")
        + b"\n"
        for one in predictions
    )


def figures_of(predictions: Sequence[Prediction], seconds: float) -> dict[str, float]:
    """What there is to count, by the names that transformers gives to a prediction's figures."""
    rows = len(predictions)
    return {
        "predict_samples": rows,
        "predict_runtime": round(seconds, 4),
        "predict_samples_per_second": round(rows / max(seconds, 1e-9), 3),
        "predict_gen_len": sum(one.answer.tokens for one in predictions) / rows,
        "predict_ended": sum(one.answer.ended for one in predictions) / rows,
        "predict_exact_match": sum(one.answer.text == one.wanted for one in predictions) / rows,
    }
