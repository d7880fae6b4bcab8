"""Runs of one rank in this process: what is refused before weights load, and how a run is found again."""

import fcntl
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from clockgate_trainer.__main__ import main
from clockgate_trainer.checkpoint.verify import verify
from clockgate_trainer.outcome import Outcome, read_outcome
from support.fake_daemon import FakeDaemon, make_reading
from support.tiny_model import make_model, make_rows

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No torchrun around."""
    for name in ("WORLD_SIZE", "TORCHELASTIC_RUN_ID", "CLOCKGATE_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def flags(model: Path, tmp_path: Path) -> list[str]:
    rows = make_rows(tmp_path / "rows.jsonl", 6)
    return [
        "--model_name_or_path", str(model), "--dataset", str(rows), "--device", "cpu", "--lora_r", "2",
        "--gradient_accumulation_steps", "2", "--output_dir", str(tmp_path / "run"), "--time_sync_check", "false",
    ]  # fmt: skip


def outcome(tmp_path: Path) -> Outcome:
    found = read_outcome(tmp_path / "run")
    assert found is not None
    return found


def metrics(tmp_path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def events(tmp_path: Path, name: str) -> list[dict[str, Any]]:
    lines = (tmp_path / "run" / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == name]


@contextmanager
def after_step(tmp_path: Path, step: int, act: Callable[[], None]) -> Iterator[None]:
    """Call `act` from another thread once the run has finished `step`."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            if (tmp_path / "run" / "metrics.jsonl").exists() and len(metrics(tmp_path)) >= step:
                act()
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_bad_row_ends_with_78_and_its_line_before_weights_load(
    flags: list[str], tmp_path: Path, model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    weightless = tmp_path / "weightless"
    weightless.mkdir()
    for file in model.iterdir():
        if file.suffix != ".safetensors":
            (weightless / file.name).write_bytes(file.read_bytes())
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(b'{"input": "a", "output": "b"}\n{"input": "a", "output": 3}\n{"input": "a"}\n')
    assert main([*flags, "--model_name_or_path", str(weightless), "--dataset", str(bad)]) == 78
    told = capfd.readouterr().err
    assert f"{bad}:2: output is a number" in told
    assert f"{bad}:3: column output is missing" in told
    assert "Traceback" not in told
    assert outcome(tmp_path).code == 78
    # The same folder with good data fails for its weights, so above they were not reached.
    assert main([*flags, "--model_name_or_path", str(weightless)]) == 78
    assert "weights" in outcome(tmp_path).reason


def test_run_folder_of_a_running_run_is_refused(
    flags: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = Path(flags[flags.index("--output_dir") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert main([*flags, "--max_steps", "1"]) == 78
    assert "in use by another run" in capfd.readouterr().err
    assert not (folder / "events.jsonl").exists()


def test_demanded_daemon_that_is_not_there_ends_with_78(flags: list[str], tmp_path: Path) -> None:
    address = str(tmp_path / "nobody.sock")
    assert main([*flags, "--time_sync_check", "true", "--clock_daemon", address]) == 78
    assert "nobody.sock" in outcome(tmp_path).reason
    assert "--clock_daemon" in outcome(tmp_path).reason


def test_auto_goes_on_without_a_daemon_and_warns_once(
    flags: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    choice = ["--time_sync_check", "auto", "--clock_daemon", str(tmp_path / "nobody.sock")]
    assert main([*flags, *choice, "--max_steps", "3"]) == 0
    told = capfd.readouterr().err
    assert "no clock daemon answers" in told
    assert told.count("warning: DAEMON_NEVER_REACHED") == 1


def test_auto_without_a_daemon_obeys_on_unknown(flags: list[str], tmp_path: Path) -> None:
    choice = ["--time_sync_check", "auto", "--clock_daemon", str(tmp_path / "nobody.sock"), "--on_unknown", "stop"]
    assert main([*flags, *choice, "--max_steps", "1"]) == 76
    assert "DAEMON_NEVER_REACHED" in outcome(tmp_path).reason


def test_clocks_out_of_limits_at_launch_stop_before_the_first_step_without_a_checkpoint(
    flags: list[str], tmp_path: Path
) -> None:
    with FakeDaemon(tmp_path / "d.sock") as daemon:
        daemon.reading = lambda: make_reading(bound_ns=1_000_000_000)
        choice = ["--time_sync_check", "true", "--clock_daemon", str(daemon.path), "--hold_timeout", "0.2"]
        assert main([*flags, *choice, "--max_steps", "1"]) == 76
    assert "HOLD_BUDGET_SPENT" in outcome(tmp_path).reason
    assert outcome(tmp_path).checkpoint is None


@pytest.mark.parametrize(("on_unknown", "code"), [("warn", 0), ("hold", 75), ("stop", 75)])
def test_daemon_that_dies_during_the_run_is_met_as_on_unknown_says(
    flags: list[str], tmp_path: Path, on_unknown: str, code: int
) -> None:
    daemon = FakeDaemon(tmp_path / "d.sock", lambda: make_reading(ttl_s=0.2))
    choice = ["--time_sync_check", "true", "--clock_daemon", str(daemon.path), "--on_unknown", on_unknown]
    with daemon, after_step(tmp_path, 3, daemon.stop):
        assert main([*flags, *choice, "--hold_timeout", "0.5", "--max_steps", "80"]) == code
    verdicts = [event for event in events(tmp_path, "gate") if event["kind"] == "STEP"]
    assert verdicts[1]["step_verdict"] == "PROCEED"
    if on_unknown == "warn":
        assert verdicts[-1]["step_verdict"] == "WARN"
        assert "READING_EXPIRED" in verdicts[-1]["reasons"]
        assert outcome(tmp_path).step == 80
    else:
        assert verdicts[-1]["step_verdict"] == "STOP"
        assert (verdicts[-1]["held_ns"] > 0.4e9) == (on_unknown == "hold")
        assert outcome(tmp_path).step == verdicts[-1]["step"] - 1
    checkpoint = outcome(tmp_path).checkpoint
    assert checkpoint is not None
    assert verify(Path(checkpoint)) == ()


def test_finished_run_is_not_trained_again(flags: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*flags, "--max_steps", "2"]) == 0
    assert main([*flags, "--max_steps", "2"]) == 0
    assert "nothing to do" in capfd.readouterr().err
    assert [row["step"] for row in metrics(tmp_path)] == [1, 2]
    assert outcome(tmp_path).checkpoint == str(tmp_path / "run" / "checkpoint-2")


def test_new_start_over_an_old_run_is_refused(flags: list[str], tmp_path: Path) -> None:
    assert main([*flags, "--max_steps", "1"]) == 0
    assert main([*flags, "--max_steps", "1", "--resume_from_checkpoint", "none"]) == 78
    assert "checkpoint-1" in outcome(tmp_path).reason


def test_resume_under_other_settings_is_refused_by_name(flags: list[str], tmp_path: Path) -> None:
    assert main([*flags, "--max_steps", "1"]) == 0
    assert main([*flags, "--max_steps", "2", "--learning_rate", "0.5"]) == 78
    assert "learning_rate" in outcome(tmp_path).reason
    rows = make_rows(tmp_path / "rows.jsonl", 7)
    assert main([*flags, "--max_steps", "2", "--dataset", str(rows)]) == 78
    assert "data" in outcome(tmp_path).reason


def test_epochs_are_counted_in_short_last_steps_too(flags: list[str], tmp_path: Path) -> None:
    split = ["--per_device_train_batch_size", "2"]
    assert main([*flags, *split, "--num_train_epochs", "1.5"]) == 0
    assert [row["step"] for row in metrics(tmp_path)] == [1, 2, 3]
    assert [row["epoch"] for row in metrics(tmp_path)] == pytest.approx([4 / 6, 1.0, 1 + 4 / 6])


def test_tokenizer_of_another_model_is_refused_before_weights_load(
    flags: list[str], tmp_path: Path, model: Path
) -> None:
    small = make_model(tmp_path / "small", vocabulary=32)
    assert main([*flags, "--model_name_or_path", str(small)]) == 78
    assert "do not belong together" in outcome(tmp_path).reason


def test_step_with_infinite_gradient_changes_no_weight_and_is_said(
    flags: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*flags, "--max_steps", "1", "--lora_alpha", "1e38", "--learning_rate", "1e30"]) == 0
    assert main([*flags, "--max_steps", "2", "--lora_alpha", "1e38", "--learning_rate", "1e30"]) == 0
    assert "changes no weight" in capfd.readouterr().err
    digests = [
        json.loads((tmp_path / "run" / f"checkpoint-{step}" / "manifest.json").read_text(encoding="utf-8"))
        for step in (1, 2)
    ]
    assert digests[0]["adapter_sha256"] == digests[1]["adapter_sha256"]
