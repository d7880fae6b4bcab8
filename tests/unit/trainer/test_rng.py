import io
import random

import numpy as np
import torch
from clockgate_trainer.train import rng

CPU = torch.device("cpu")


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.standard_normal()), float(torch.randn(()))


def test_restored_state_repeats_what_was_drawn_after_it() -> None:
    rng.seed_everything(5)
    draw()
    state = rng.capture(CPU)
    first = [draw() for _ in range(3)]
    rng.restore(state, CPU)
    assert [draw() for _ in range(3)] == first


def test_state_survives_a_file_that_holds_no_classes() -> None:
    state = rng.capture(CPU)
    first = draw()
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    rng.restore(torch.load(file, weights_only=True), CPU)
    assert draw() == first


def test_equal_seeds_draw_equal_numbers_and_unequal_ones_do_not() -> None:
    rng.seed_everything(1)
    one = draw()
    rng.seed_everything(1)
    assert draw() == one
    rng.seed_everything(2)
    assert draw() != one
