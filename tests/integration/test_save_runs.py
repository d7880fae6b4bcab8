"""Whole runs of a small model: what the flags about checkpoints do, from the command line to the exit code."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from clockgate_trainer.checkpoint.claim import LOCK_FILE
from clockgate_trainer.checkpoint.files import HOST
from clockgate_trainer.checkpoint.manifest import Manifest, content_id
from clockgate_trainer.checkpoint.verify import read_manifest, verify
from support.small_runs import SmallRun, play

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

FLAGS = [
    "--time_sync_check",
    "false",
    "--gradient_accumulation_steps",
    "2",
    "--save_steps",
    "2",
    "--vote_timeout",
    "60",
]


@dataclass(frozen=True)
class Ended:
    """Exit codes of the ranks of each run, by its name, and where their folders are."""

    folder: Path
    codes: dict[str, list[int]]

    def checkpoint(self, run: str, step: int) -> Manifest:
        """The verified checkpoint of `step`."""
        path = self.folder / run / f"checkpoint-{step}"
        assert verify(path) == ()
        manifest = read_manifest(path, HOST)
        assert isinstance(manifest, Manifest)
        return manifest

    def steps(self, run: str) -> list[int]:
        """The steps that have a checkpoint."""
        return sorted(int(path.name[11:]) for path in (self.folder / run).glob("checkpoint-*"))

    def outcome(self, run: str) -> dict[str, object]:
        """What outcome.json tells."""
        content: dict[str, object] = json.loads((self.folder / run / "outcome.json").read_text("utf-8"))
        return content


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("runs")
    runs: dict[str, SmallRun] = {}

    def plan(name: str, folders: Sequence[str], steps: int, *flags: str, deed: str = "", step: int = 0) -> None:
        places = [str(folder / one) for one in folders]
        runs[name] = SmallRun(places, [*FLAGS, "--max_steps", str(steps), *flags], deed, step=step)

    plan("whole", ["whole", "whole"], 8)
    plan("async", ["async", "async"], 8, "--async_save")
    plan("async stopped", ["stopped", "stopped"], 8, "--async_save", deed="SIGTERM", step=5)
    plan("async resumed", ["stopped", "stopped"], 8, "--async_save")
    plan("apart", ["a", "b"], 6)
    plan("apart resumed", ["a", "c"], 8)
    plan("flipped", ["flipped", "flipped"], 8, deed="flip", step=3)
    plan("repaired", ["repaired", "repaired"], 8, "--on_divergence", "broadcast", deed="flip", step=3)
    plan("fewer", ["whole"], 10)
    plan("fewer allowed", ["whole"], 10, "--allow_world_size_change")
    return Ended(folder, dict(zip(runs, play(folder, list(runs.values())), strict=True)))


def test_a_run_that_saves_in_the_background_saves_the_same(ended: Ended) -> None:
    assert (ended.codes["whole"], ended.codes["async"]) == ([0, 0], [0, 0])
    assert ended.steps("async") == [2, 4, 6, 8]
    for step in (2, 4, 6, 8):
        assert content_id(ended.checkpoint("async", step)) == content_id(ended.checkpoint("whole", step))


def test_a_stop_brings_what_is_being_written_and_the_last_step_to_disk(ended: Ended) -> None:
    assert ended.codes["async stopped"] == [75, 75]
    assert ended.codes["async resumed"] == [0, 0]
    assert ended.steps("stopped")[:2] == [2, 4]
    assert any(step in ended.steps("stopped") for step in (5, 6))
    assert ended.checkpoint("stopped", 8).adapter_sha256 == ended.checkpoint("whole", 8).adapter_sha256


def test_nodes_with_folders_of_their_own_have_a_copy_each_and_a_new_node_gets_one(ended: Ended) -> None:
    assert (ended.codes["apart"], ended.codes["apart resumed"]) == ([0, 0], [0, 0])
    assert ended.steps("b") == [2, 4, 6]
    assert (ended.folder / "b" / LOCK_FILE).exists()
    assert content_id(ended.checkpoint("a", 4)) == content_id(ended.checkpoint("b", 4))
    # The node without any checkpoint got that of step 6, and the run is the one that was never stopped.
    assert ended.steps("c") == [6, 8]
    assert content_id(ended.checkpoint("c", 8)) == content_id(ended.checkpoint("a", 8))
    assert ended.checkpoint("c", 8).adapter_sha256 == ended.checkpoint("whole", 8).adapter_sha256


def test_adapters_that_differ_end_the_run_with_76_and_the_checkpoint_before_stands(ended: Ended) -> None:
    assert ended.codes["flipped"] == [76, 76]
    assert ended.steps("flipped") == [2]
    outcome = ended.outcome("flipped")
    assert outcome["checkpoint"] == str(ended.folder / "flipped" / "checkpoint-2")
    assert "adapters of the ranks differ after step 4" in str(outcome["reason"])
    assert outcome["ranks"] == [0, 1]
    assert "CRITICAL" in (ended.folder / "flipped" / "events.jsonl").read_text("utf-8")


def test_adapters_that_differ_are_made_equal_when_asked_and_the_manifest_says_so(ended: Ended) -> None:
    assert ended.codes["repaired"] == [0, 0]
    repair = ended.checkpoint("repaired", 4).adapter_repair
    assert repair is not None
    assert (repair.source_rank, repair.ranks) == (0, (1,))
    assert ended.checkpoint("repaired", 6).adapter_repair is None
    assert ended.steps("repaired") == [2, 4, 6, 8]


def test_another_number_of_ranks_goes_on_only_when_allowed(ended: Ended) -> None:
    assert ended.codes["fewer"] == [78]
    assert ended.codes["fewer allowed"] == [0]
    assert ended.checkpoint("whole", 10).world_size == 1
    assert ended.outcome("whole")["step"] == 10


def test_best_json_names_a_checkpoint_that_stands(ended: Ended) -> None:
    for run in ("whole", "async", "b"):
        best = json.loads((ended.folder / run / "best.json").read_text("utf-8"))
        assert best["metric"] == "train_loss"
        assert ended.checkpoint(run, best["step"]).step == best["step"]
