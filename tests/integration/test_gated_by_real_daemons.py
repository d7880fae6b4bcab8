"""Two ranks, each with a clockgated of its own: one daemon is put out of order, both ranks do the same thing."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from clockgate_trainer.checkpoint.verify import verify
from clockgate_trainer.outcome import read_outcome
from support.daemon import Clockgated, clockgated, toml
from support.forked_ranks import Job, run_jobs
from support.tiny_model import make_model, make_rows

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

STEPS, FAULT_AT_STEP = 60, 5
HELD_S = 3
READING = {"after_s": 0, "bound_ns": 200_000, "offset_ns": 0, "identity": "ntp:192.0.2.1", "stratum": 2}
# A short-lived reading, so that a dead daemon's last word does not outlive the run.
CLOCK = 'source = "recorded"\npoll_interval_s = 0.2\nreading_ttl_s = 1.2\nsync_cycles = 2'


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("inputs")
    return [
        "--model_name_or_path", str(make_model(folder / "model")),
        "--dataset", str(make_rows(folder / "rows.jsonl")), "--dataset_format", "input-output",
        "--device", "cpu", "--lora_r", "8", "--lora_dropout", "0.1", "--logging_steps", "1000",
        "--gradient_accumulation_steps", "1", "--save_steps", "1000", "--max_steps", str(STEPS),
    ]  # fmt: skip


@contextmanager
def two_daemons(folder: Path) -> Iterator[tuple[Clockgated, Clockgated]]:
    recording = folder / "reading.jsonl"
    recording.write_text(json.dumps(READING) + "\n", encoding="utf-8")
    with ExitStack() as stack:
        zero, one = (
            stack.enter_context(
                clockgated(folder / name, toml(folder / name, clock=CLOCK, extra=f'[recorded]\nfile = "{recording}"'))
            )
            for name in ("d0", "d1")
        )
        yield zero, one


def run_with_fault(
    folder: Path, flags: list[str], daemons: tuple[Clockgated, Clockgated], fault: Callable[[Clockgated], object]
) -> list[int]:
    """Train two ranks under one daemon each; `fault` is done to rank 1's daemon at step FAULT_AT_STEP."""
    own = {str(rank): ["--clock_daemon", str(daemon.socket)] for rank, daemon in enumerate(daemons)}
    job = Job(2, [*flags, "--output_dir", str(folder / "run"), "--time_sync_check", "true"], own)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_jobs, folder, [job])
        until = time.monotonic() + 90
        while time.monotonic() < until and not running.done() and last_step(folder / "run") < FAULT_AT_STEP:
            time.sleep(0.02)
        fault(daemons[1])
        return running.result()[0]


def last_step(run: Path) -> int:
    metrics = run / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def lines(run: Path, file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / file).read_text(encoding="utf-8").splitlines()]


def losses(run: Path) -> list[tuple[int, float]]:
    return [(row["step"], row["loss"]) for row in lines(run, "metrics.jsonl")]


def test_fault_in_one_daemon_holds_both_ranks_and_changes_no_loss(tmp_path: Path, inputs: list[str]) -> None:
    plain = Job(2, [*inputs, "--output_dir", str(tmp_path / "plain"), "--time_sync_check", "false"])
    assert run_jobs(tmp_path, [plain]) == [[0, 0]]
    with two_daemons(tmp_path) as daemons:
        codes = run_with_fault(
            tmp_path, inputs, daemons, lambda daemon: daemon.ctl("drill", "offset", "200ms", "--for", f"{HELD_S}s")
        )
    assert codes == [0, 0]
    assert losses(tmp_path / "run") == losses(tmp_path / "plain")
    (zero, one) = (
        [row for row in lines(tmp_path / "run", name) if row["event"] == "gate" and row["held_ns"] > 0]
        for name in ("events.jsonl", "events-rank1.jsonl")
    )
    assert [row["step"] for row in zero] == [row["step"] for row in one]
    for rows in (zero, one):
        # The drill is seen one cycle late and its end is settled for two: a little more, or less, than three seconds.
        assert HELD_S - 1 < sum(row["held_ns"] for row in rows) / 1e9 < HELD_S + 10


@pytest.mark.parametrize(
    ("policy", "codes"), [("warn", [0, 0]), ("hold", [75, 75]), ("stop", [75, 75])], ids=["warn", "hold", "stop"]
)
def test_killed_daemon_is_judged_by_on_unknown(
    tmp_path: Path, inputs: list[str], policy: str, codes: list[int]
) -> None:
    flags = [*inputs, "--on_unknown", policy, "--hold_timeout", "2"]
    with two_daemons(tmp_path) as daemons:
        assert run_with_fault(tmp_path, flags, daemons, lambda daemon: daemon.process.kill()) == codes
    outcome = read_outcome(tmp_path / "run")
    assert outcome is not None
    assert outcome.code == codes[0]
    assert outcome.checkpoint is not None
    assert verify(Path(outcome.checkpoint)) == ()
    decisions = [row for row in lines(tmp_path / "run", "events.jsonl") if row["event"] == "gate"]
    if policy == "warn":
        warned = [row for row in decisions if row["step_verdict"] == "WARN"]
        assert warned
        assert {tuple(row["blamed_ranks"]) for row in warned} == {(1,)}
        assert all("READING_EXPIRED" in row["reasons"] for row in warned)
        assert last_step(tmp_path / "run") == STEPS
    else:
        assert outcome.ranks == (1,)
        assert outcome.step is not None
        assert outcome.step < STEPS


def test_restarted_daemon_is_used_again(tmp_path: Path, inputs: list[str]) -> None:
    """Rank 1's daemon is killed; while the ranks hold for it, another one takes over its socket."""
    restarted: list[Clockgated] = []
    with ExitStack() as stack:
        daemons = stack.enter_context(two_daemons(tmp_path))

        def restart(daemon: Clockgated) -> None:
            daemon.process.kill()
            daemon.process.wait(10)
            time.sleep(2.5)
            folder = daemon.config.parent
            restarted.append(stack.enter_context(clockgated(folder, daemon.config.read_text(encoding="utf-8"))))

        assert run_with_fault(tmp_path, [*inputs, "--on_unknown", "hold"], daemons, restart) == [0, 0]
    held = [row for row in lines(tmp_path / "run", "events.jsonl") if row["event"] == "gate" and row["held_ns"] > 0]
    assert len(held) == 1
    assert held[0]["held_ns"] / 1e9 < 15
