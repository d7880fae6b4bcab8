from dataclasses import replace

import pytest
from clockgate_trainer.train.progress import Progress, StepReport, duration

REPORT = StepReport(
    step=1,
    epoch=0.1,
    loss=2.0,
    grad_norm=1.0,
    learning_rate=1e-4,
    tokens=1000,
    label_tokens=100,
    step_ns=2_000_000_000,
    held_ns=0,
    cluster_bound_ns=1_500_000,
)


def test_line_comes_every_so_many_steps_and_at_the_last() -> None:
    progress = Progress(total_steps=5, every=2)
    lines = [progress.line(replace(REPORT, step=step)) for step in range(1, 6)]
    assert [line is not None for line in lines] == [False, True, False, True, True]
    assert lines[1] is not None
    assert lines[1].startswith("step 2/5")


def test_line_tells_loss_speed_bound_and_what_is_left() -> None:
    progress = Progress(total_steps=10, every=2)
    progress.line(REPORT)
    line = progress.line(replace(REPORT, step=2, loss=4.0, label_tokens=300))
    assert line is not None
    assert "loss 3.5000" in line
    assert "500 tokens/s" in line
    assert "clocks ±1.500 ms" in line
    assert "16 s left" in line


def test_held_time_counts_neither_as_work_nor_into_what_is_left() -> None:
    progress = Progress(total_steps=10, every=1)
    line = progress.line(replace(REPORT, step_ns=62_000_000_000, held_ns=60_000_000_000, cluster_bound_ns=None))
    assert line is not None
    assert "500 tokens/s" in line
    assert "held 60.0 s" in line
    assert "18 s left" in line
    assert "clocks unknown" in line


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0 s"), (59.4, "59 s"), (185, "3 min 05 s"), (7800, "2 h 10 min"), (86400, "24 h 00 min")]
)
def test_duration_is_said_as_a_person_would(seconds: float, said: str) -> None:
    assert duration(seconds) == said
