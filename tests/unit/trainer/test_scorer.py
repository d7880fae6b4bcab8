"""What evaluation leaves behind: numbers, and no logits of rows that are done."""

import weakref
from typing import Any

import torch
from clockgate_trainer.data.collate import collate
from clockgate_trainer.data.tokens import TokenRow
from clockgate_trainer.train.scorer import Scorer
from support.chaos.small import SmallModel


def test_evaluation_holds_the_logits_of_one_batch_at_a_time() -> None:
    model = SmallModel(seed=0)
    kept: list[weakref.ref[torch.Tensor]] = []
    alive_before: list[int] = []

    def note(_module: torch.nn.Module, _inputs: Any, output: Any) -> None:
        alive_before.append(sum(each() is not None for each in kept))
        kept.append(weakref.ref(output.logits))

    model.register_forward_hook(note)
    scorer = Scorer(model, torch.device("cpu"), compute=torch.float32)
    with scorer.evaluating():
        found = [scorer.loss_of(collate([TokenRow.after((1, 5, place, 2), 2)], 2)) for place in range(3, 23)]
    assert len(kept) == len(found) == 20
    assert alive_before == [0] * 20
    assert all(isinstance(loss, float) and loss > 0 for loss in found)
