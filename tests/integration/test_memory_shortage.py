"""Two ranks, one of which runs out of memory: both turn to smaller micro-batches, or end alike."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from clockgate_trainer.checkpoint.files import HOST
from clockgate_trainer.checkpoint.manifest import Manifest
from clockgate_trainer.checkpoint.verify import read_manifest
from clockgate_trainer.outcome import read_outcome
from support.small_runs import SmallRun, play

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

STEPS = 6
COMMON = ("--time_sync_check", "false", "--device", "cpu", "--save_strategy", "no")


def job(folder: Path, name: str, rows: int, batches: int, *flags: str, steps: int = STEPS, **how: Any) -> SmallRun:
    split = ("--per_device_train_batch_size", str(rows), "--gradient_accumulation_steps", str(batches))
    return SmallRun([str(folder / name)] * 2, [*COMMON, *split, "--max_steps", str(steps), *flags], **how)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    jobs: Sequence[tuple[SmallRun, int]] = [
        (job(folder, "small", 1, 4), 0),
        (job(folder, "rehearsed", 4, 1, deed="short"), 0),
        (job(folder, "steady", 1, 4, steady=True), 0),
        (job(folder, "early", 2, 2, deed="short", step=3, steady=True), 0),
        (job(folder, "late", 4, 1, deed="short", step=3, steady=True), 0),
        (job(folder, "in-the-loss", 4, 1, deed="short-in-loss", step=3, steady=True), 0),
        (job(folder, "stopped", 4, 1, steps=4, deed="short", step=3, steady=True), 0),
        (job(folder, "stopped", 4, 1, steady=True), 0),
        (job(folder, "refused", 4, 1, "--oom_fallback", "false", deed="short"), 78),
        (job(folder, "ended", 4, 1, "--oom_fallback", "false", deed="short", step=3), 78),
    ]
    assert play(folder, [one for one, _ in jobs]) == [[code, code] for _, code in jobs]
    return folder


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def losses(folder: Path) -> list[float]:
    return [row["loss"] for row in metrics(folder)]


def events(folder: Path, name: str, rank: int = 0) -> list[dict[str, Any]]:
    file = folder / ("events.jsonl" if rank == 0 else f"events-rank{rank}.jsonl")
    return [event for event in map(json.loads, file.read_text(encoding="utf-8").splitlines()) if event["event"] == name]


def digest(folder: Path, step: int = STEPS) -> str:
    manifest = read_manifest(folder / f"checkpoint-{step}", HOST)
    assert isinstance(manifest, Manifest)
    return manifest.adapter_sha256


def test_a_shortage_before_the_first_step_gives_the_run_of_smaller_micro_batches_bit_for_bit(runs: Path) -> None:
    assert digest(runs / "rehearsed") == digest(runs / "small")
    assert losses(runs / "rehearsed") == losses(runs / "small")
    for rank in (0, 1):
        told = [event["detail"] for event in events(runs / "rehearsed", "out_of_memory", rank)]
        assert ["rank 1: a micro-batch of 4 rows does" in told[0], "of 2 rows does" in told[1]] == [True, True]
        assert "4 micro-batches of 1 row" in told[1]


@pytest.mark.parametrize("where", ["early", "late", "in-the-loss"])
def test_a_shortage_in_a_step_does_it_again_with_the_same_rows_on_both_ranks(runs: Path, where: str) -> None:
    assert losses(runs / where) == pytest.approx(losses(runs / "steady"), rel=1e-5)
    rows = metrics(runs / where)
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    assert not any(row["skipped"] for row in rows)
    assert [row["tokens"] for row in rows] == [row["tokens"] for row in metrics(runs / "steady")]
    told = [event["detail"] for event in events(runs / where, "out_of_memory", 1)]
    assert told
    assert all(text.startswith("step 4: rank 1: a micro-batch") for text in told)
    assert "4 micro-batches of 1 row on every rank" in told[-1]


def test_a_resumed_run_keeps_the_micro_batches_that_it_came_down_to(runs: Path) -> None:
    assert digest(runs / "stopped") == digest(runs / "late")
    told = [event["detail"] for event in events(runs / "stopped", "notice")]
    assert any("in 4 micro-batches of 1 row on every rank, as the run before it" in text for text in told)


def test_without_the_fallback_all_ranks_end_alike_with_advice_and_what_was_done_is_saved(runs: Path) -> None:
    refused, ended = read_outcome(runs / "refused"), read_outcome(runs / "ended")
    assert refused is not None
    assert ended is not None
    assert refused.checkpoint is None
    assert (refused.ranks, ended.ranks, ended.step) == ((1,), (1,), 3)
    assert "does not fit into memory. Lower --per_device_train_batch_size" in refused.reason
    assert "does not fit into memory. Lower --per_device_train_batch_size" in ended.reason
    assert ended.checkpoint == str(runs / "ended" / "checkpoint-3")
    assert digest(runs / "ended", 3)
