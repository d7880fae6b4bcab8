"""Real ranks over gloo save together: folders of their own, saves in the background, adapters that differ."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from clockgate_trainer.checkpoint.resume import clean_staging, find_resume
from clockgate_trainer.checkpoint.verify import verify
from support.save_scenes import SCENES

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


class Played:
    """Exit codes and notes of the ranks of every scene."""

    def __init__(self, folder: Path, codes: dict[str, list[int]]) -> None:
        self.folder = folder
        self.codes = codes

    def seen(self, scene: str) -> list[dict[str, Any]]:
        """The notes of the ranks of `scene` that lived to write some."""
        return [json.loads(path.read_text("utf-8")) for path in sorted((self.folder / scene).glob("seen-*.json"))]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("scenes")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "support.save_scenes", folder, *SCENES],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=280,
        check=True,
    )
    return Played(folder, json.loads(done.stdout.splitlines()[-1]))


def test_ranks_find_out_who_shares_a_folder_and_each_node_has_its_copy(played: Played) -> None:
    assert played.codes["apart"] == [0, 0, 0]
    for seen in played.seen("apart"):
        assert seen["homes"] == [0, 0, 2]
        assert seen["save 1"]["saved"]
        assert seen["names"] == ["best.json", "checkpoint-1", "checkpoint-2"]
    for node in ("a", "b"):
        for step in (1, 2):
            assert verify(played.folder / "apart" / node / f"checkpoint-{step}") == ()


def test_a_node_whose_copy_broke_and_one_that_is_new_get_the_newest_checkpoint(played: Played) -> None:
    folder = played.folder / "apart"
    for rank, (node, fresh) in enumerate((("a", "a"), ("a", "a"), ("b", "c"))):
        seen = played.seen("apart")[rank]
        assert seen["healed"] == {"path": str(folder / node / "checkpoint-2"), "step": 2, "row": 2}
        assert seen["replaced"] == {"path": str(folder / fresh / "checkpoint-2"), "step": 2}
        assert seen["named"] == {"path": str(folder / node / "checkpoint-1"), "step": 1}
    assert verify(folder / "c" / "checkpoint-2") == ()
    assert [path.name.rpartition("-")[0] for path in (folder / "b").glob("quar*")] == ["quarantined-checkpoint-2"]


def test_a_node_that_cannot_write_costs_the_checkpoint_on_all(played: Played) -> None:
    for seen in played.seen("apart"):
        assert (seen["no room"]["saved"], seen["no room"]["ranks"]) == (False, [2])
        assert seen["names after"] == ["best.json", "checkpoint-1", "checkpoint-2"]


def test_folders_of_different_runs_are_refused_on_all_ranks(played: Played) -> None:
    assert played.codes["strangers"] == [0, 0]
    for seen in played.seen("strangers"):
        assert "ranks 0 and 1 hold different checkpoints of step 1" in seen["error"]


def test_training_goes_on_while_a_checkpoint_is_written_and_the_next_save_waits(played: Played) -> None:
    assert played.codes["background"] == [0, 0]
    for seen in played.seen("background"):
        assert not seen["first"]["saved"]
        assert seen["steps meanwhile"] >= 2
        assert seen["is what it was"], "the checkpoint holds weights of a later step"
        assert seen["standing"] == str(played.folder / "background" / "run" / "checkpoint-1")
        # The save before it was committed when the next one began, and the last one when it returned.
        assert (seen["saved at"], seen["waited for"]) == (1, 1)
        assert seen["last"]["saved"]
        assert seen["all"][1:] == [1, 2, 3]
        assert seen["events"].count("checkpoint_saved") == 4
    first, second = played.seen("background")
    assert first["steps meanwhile"] == second["steps meanwhile"]
    assert first["events"].count("checkpoint_waited_for") == 2
    for path in (played.folder / "background" / "run").glob("checkpoint-*"):
        assert verify(path) == ()


def test_a_disk_that_is_full_in_the_background_costs_the_checkpoint_alone(played: Played) -> None:
    assert played.codes["background-fails"] == [0, 0]
    for seen in played.seen("background-fails"):
        assert seen["saved"] == 0
        assert "checkpoint_failed" in seen["events"]
        assert seen["names"] == []


def test_a_writer_killed_in_the_background_leaves_the_checkpoint_before(played: Played) -> None:
    assert played.codes["background-killed"] == [-signal.SIGKILL, 79]
    run = played.folder / "background-killed" / "run"
    assert list(run.glob(".staging-checkpoint-2-*"))
    clean_staging(run)
    found = find_resume(run, "auto")
    assert found is not None
    assert (found.step, found.passed_over) == (1, ())


def test_a_flipped_bit_on_one_rank_is_repaired_from_the_majority_and_recorded(played: Played) -> None:
    assert played.codes["diverged"] == [0, 0, 0]
    everyone = played.seen("diverged")
    for case, repair in (("rank 1", [0, [1]]), ("rank 0", [1, [0]])):
        for seen in everyone:
            assert seen[case]["saved"]
            assert seen[f"{case} repair"] == repair
            assert seen[f"{case} events"][:2] == ["checkpoint_refused", "adapter_repaired"]
        for name in (f"{case} adapter", f"{case} after"):
            assert len({seen[name] for seen in everyone}) == 1, "the optimizer or the adapter still differs"
    # What was repaired is what the good ranks had all along.
    assert everyone[0]["rank 1 adapter"] == everyone[0]["rank 0 adapter"] == everyone[0]["stop adapter"]


def test_a_flipped_bit_that_nobody_may_repair_is_refused_on_all_ranks(played: Played) -> None:
    for seen in played.seen("diverged"):
        assert (seen["stop"]["saved"], seen["stop"]["diverged"], seen["stop"]["ranks"]) == (False, True, [1])
        assert seen["stop events"] == ["checkpoint_refused"]
    assert list((played.folder / "diverged" / "stop").glob("checkpoint-*")) == []
