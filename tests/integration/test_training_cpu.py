"""Whole training runs on CPU ranks: resume, gate, signals, lost ranks, ranks that disagree."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clockgate.v1 import clock_pb2
from clockgate_trainer.checkpoint.verify import verify
from clockgate_trainer.outcome import read_outcome
from support.fake_daemon import FakeDaemon, make_reading
from support.forked_ranks import Job, run_jobs
from support.tiny_model import make_model, make_rows

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

STEPS = 16
HELD_S = 1.0


class Runs:
    """Every run of this module: made once, looked at by many tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.codes: dict[str, list[list[int]]] = {}
        self._jobs: list[tuple[str, Job]] = []
        self._base = [
            "--model_name_or_path", str(make_model(folder / "model")),
            "--dataset", str(make_rows(folder / "rows.jsonl")), "--dataset_format", "input-output",
            "--device", "cpu", "--lora_r", "8", "--lora_dropout", "0.1", "--learning_rate", "0.001",
            "--gradient_accumulation_steps", "2", "--logging_steps", "100", "--save_steps", "4",
        ]  # fmt: skip

    def plan(self, name: str, ranks: int, *flags: str, **options: Any) -> None:
        """Add one start of the run `name`; equal names share a run folder."""
        gate = () if "--clock_daemon" in flags else ("--time_sync_check", "false")
        job = Job(ranks, [*self._base, "--output_dir", str(self.folder / name), *gate, *flags], **options)
        self._jobs.append((name, job))

    def carry_out(self) -> None:
        found = run_jobs(self.folder, [job for _, job in self._jobs])
        for (name, _), codes in zip(self._jobs, found, strict=True):
            self.codes.setdefault(name, []).append(codes)

    def losses(self, name: str) -> dict[int, tuple[float, float]]:
        """Loss and gradient norm by step, of the newest attempt at it."""
        return {row["step"]: (row["loss"], row["grad_norm"]) for row in self.lines(name, "metrics.jsonl")}

    def events(self, name: str, event: str) -> list[dict[str, Any]]:
        return [row for row in self.lines(name, "events.jsonl") if row["event"] == event]

    def adapter(self, name: str, step: int = STEPS) -> str:
        path = self.folder / name / f"checkpoint-{step}"
        assert verify(path) == ()
        digest: str = json.loads((path / "manifest.json").read_text(encoding="utf-8"))["adapter_sha256"]
        return digest

    def lines(self, name: str, file: str) -> Iterator[dict[str, Any]]:
        for line in (self.folder / name / file).read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


class HoldOnce:
    """Makes the readings of `daemon` too wide from the first question about step 5 on, until HELD_S after ranks wait.

    That they wait shows in their questions: each asks once a step while it trains, and again and again while it waits.
    """

    def __init__(self, daemon: FakeDaemon) -> None:
        self._daemon = daemon
        self._until: float | None = None

    def __call__(self) -> clock_pb2.Reading:
        steps = [request.step for request in list(self._daemon.requests)]
        asked = len(steps) - steps.index(5) if 5 in steps else 0
        if asked > 5 and self._until is None:
            self._until = time.monotonic() + HELD_S
        holds = asked > 0 and (self._until is None or time.monotonic() < self._until)
        return make_reading(bound_ns=200_000_000 if holds else 100_000)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("runs")
    made = Runs(folder)
    for ranks in (1, 2, 4):
        made.plan(f"whole-{ranks}", ranks, "--max_steps", str(STEPS if ranks == 2 else 8))
    for ranks in (1, 4):
        made.plan(f"parts-{ranks}", ranks, "--max_steps", "5")
        made.plan(f"parts-{ranks}", ranks, "--max_steps", "8")
    steps = ("--max_steps", str(STEPS))
    made.plan("stopped", 2, *steps, signal_name="SIGTERM", signal_rank=1, signal_step=3)
    made.plan("stopped", 2, *steps)
    made.plan("killed", 2, *steps, "--vote_timeout", "20", signal_name="SIGKILL", signal_rank=1, signal_step=5)
    made.plan("killed", 2, *steps)
    made.plan("frozen", 2, *steps, "--vote_timeout", "3", "--ddp_timeout", "6",
              signal_name="SIGSTOP", signal_rank=1, signal_step=5)  # fmt: skip
    made.plan("asked", 2, *steps, "--save_strategy", "no", signal_name="SIGUSR1", signal_rank=1, signal_step=3)
    made.plan("again", 2, *steps, "--resume_from_checkpoint", str(folder / "asked"))
    made.plan("unequal", 2, *steps, rank_flags={"1": ["--lora_r", "4"]})
    bad = folder / "bad.jsonl"
    bad.write_bytes((folder / "rows.jsonl").read_bytes() + b'{"input": "c", "output": null}\n')
    made.plan("bad-on-one", 2, *steps, rank_flags={"1": ["--dataset", str(bad)]})
    daemon = FakeDaemon(folder / "d.sock").start()
    daemon.reading = HoldOnce(daemon)
    gate = ("--time_sync_check", "true", "--clock_daemon", str(daemon.path), "--on_unknown", "stop")
    made.plan("gated", 2, *steps, *gate)
    try:
        made.carry_out()
    finally:
        daemon.stop()
    return made


@pytest.mark.parametrize("ranks", [1, 4])
def test_resumed_run_is_bit_identical_to_an_uninterrupted_one(runs: Runs, ranks: int) -> None:
    assert runs.codes[f"whole-{ranks}"] == [[0] * ranks]
    assert runs.codes[f"parts-{ranks}"] == [[0] * ranks] * 2
    assert runs.losses(f"parts-{ranks}") == runs.losses(f"whole-{ranks}")
    assert runs.adapter(f"parts-{ranks}", 8) == runs.adapter(f"whole-{ranks}", 8)


def test_run_learns(runs: Runs) -> None:
    losses = runs.losses("whole-2")
    assert losses[STEPS][0] < losses[1][0] - 0.3


def test_sigterm_on_one_rank_stops_all_with_a_checkpoint_and_loses_no_step(runs: Runs) -> None:
    assert runs.codes["stopped"] == [[75, 75], [0, 0]]
    assert runs.losses("stopped") == runs.losses("whole-2")
    assert runs.adapter("stopped") == runs.adapter("whole-2")
    # The step that the stop undid was taken once, after the resume, from exactly where it began.
    steps = [row["step"] for row in runs.lines("stopped", "metrics.jsonl")]
    assert steps == list(range(1, STEPS + 1))


def test_killed_rank_ends_the_other_with_79_and_the_job_resumes_from_a_verified_checkpoint(runs: Runs) -> None:
    assert runs.codes["killed"] == [[79, -9], [0, 0]]
    (resumed,) = runs.events("killed", "resume")
    assert "checkpoint-" in resumed["detail"]
    assert runs.losses("killed") == runs.losses("whole-2")
    assert runs.adapter("killed") == runs.adapter("whole-2")


def test_frozen_rank_ends_the_other_with_79_in_bounded_time(runs: Runs) -> None:
    assert runs.codes["frozen"] == [[79, -9]]
    outcome = read_outcome(runs.folder / "frozen")
    assert outcome is not None
    assert outcome.code == 79
    assert outcome.checkpoint is not None
    assert verify(Path(outcome.checkpoint)) == ()


def test_sigusr1_saves_and_goes_on_and_a_run_folder_can_be_resumed_from(runs: Runs) -> None:
    assert runs.codes["asked"] == [[0, 0]]
    saved = sorted(int(path.name.partition("-")[2]) for path in (runs.folder / "asked").glob("checkpoint-*"))
    assert len(saved) == 2
    assert saved[0] < saved[1] == STEPS
    assert runs.codes["again"] == [[0, 0]]
    assert "nothing to do" in runs.events("again", "notice")[-1]["detail"]


def test_ranks_with_different_flags_end_with_78_and_name_the_flag(runs: Runs) -> None:
    assert runs.codes["unequal"] == [[78, 78]]
    outcome = read_outcome(runs.folder / "unequal")
    assert outcome is not None
    assert "--lora_r is 8 on rank 0 and 4 on rank 1" in outcome.reason


def test_bad_row_on_one_rank_ends_all_with_78_and_its_line(runs: Runs) -> None:
    assert runs.codes["bad-on-one"] == [[78, 78]]
    outcome = read_outcome(runs.folder / "bad-on-one")
    assert outcome is not None
    assert outcome.ranks == (1,)
    assert "bad.jsonl:23: output is null" in outcome.reason


def test_gated_run_is_bit_identical_to_an_ungated_one_also_across_a_hold(runs: Runs) -> None:
    assert runs.codes["gated"] == [[0, 0]]
    steps = [row for row in runs.events("gated", "gate") if row["kind"] == "STEP" and row["step"] > 0]
    assert [row["step"] for row in steps] == list(range(1, STEPS + 1))
    assert all(row["step_verdict"] == "PROCEED" and row["cluster_bound_ns"] is not None for row in steps)
    assert sum(row["held_ns"] for row in steps) > HELD_S * 0.5e9
    assert runs.losses("gated") == runs.losses("whole-2")
    assert runs.adapter("gated") == runs.adapter("whole-2")
