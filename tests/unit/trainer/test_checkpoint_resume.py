import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from clockgate_trainer.checkpoint.resume import (
    Candidate,
    choose,
    clean_staging,
    demand_settings,
    find_resume,
    load,
)
from clockgate_trainer.checkpoint.verify import Fault, Problem
from clockgate_trainer.errors import ConfigError, ExitCode
from support.checkpoints import FragileDisk, make_state, make_store, save


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with checkpoints 9 and 10."""
    for step in (9, 10):
        assert save(make_store(tmp_path, FragileDisk(tmp_path)), step, float(step)).saved
    return tmp_path


def break_it(checkpoint: Path) -> None:
    (checkpoint / "optimizer.pt").write_bytes(b"?")


def test_none_starts_anew_and_auto_does_in_a_folder_without_checkpoints(run: Path, tmp_path: Path) -> None:
    assert find_resume(run, "none") is None
    assert find_resume(tmp_path / "not there", "auto") is None
    (tmp_path / "empty").mkdir()
    assert find_resume(tmp_path / "empty", "auto") is None


def test_auto_takes_the_highest_step_whatever_the_times_of_files_say(run: Path) -> None:
    os.utime(run / "checkpoint-10", (1, 1))
    for file in (run / "checkpoint-10").iterdir():
        os.utime(file, (1, 1))
    found = find_resume(run, "auto")
    assert found is not None
    assert (found.path, found.step, found.passed_over) == (run / "checkpoint-10", 10, ())


def test_the_step_is_the_manifests_not_the_names(run: Path) -> None:
    (run / "checkpoint-9").rename(run / "checkpoint-99")
    found = find_resume(run, "auto")
    assert found is not None
    assert found.path.name == "checkpoint-10"


def test_auto_passes_over_a_broken_newer_one_and_names_it(run: Path) -> None:
    break_it(run / "checkpoint-10")
    found = find_resume(run, "auto")
    assert found is not None
    assert found.path == run / "checkpoint-9"
    (broken,) = found.passed_over
    assert broken.path == run / "checkpoint-10"
    assert [problem.file for problem in broken.problems] == ["optimizer.pt"]


def test_auto_does_not_start_anew_when_every_checkpoint_is_broken(run: Path) -> None:
    break_it(run / "checkpoint-9")
    (run / "checkpoint-10" / "manifest.json").unlink()
    with pytest.raises(ConfigError) as raised:
        find_resume(run, "auto")
    told = str(raised.value)
    assert "checkpoint-9: optimizer.pt: 1 bytes" in told
    assert "checkpoint-10: manifest.json: is not there" in told
    assert "--resume_from_checkpoint none" in told


def test_folders_that_are_no_checkpoints_are_not_looked_at(run: Path) -> None:
    for name in ("checkpoint-best", "checkpoint-011", "checkpoint-11.bak", ".staging-checkpoint-11-0123abcd"):
        (run / name).mkdir()
    (run / "checkpoint-12").touch()
    found = find_resume(run, "auto")
    assert found is not None
    assert (found.step, found.passed_over) == (10, ())


def test_a_path_is_taken_when_it_is_verified(run: Path, tmp_path: Path) -> None:
    elsewhere = shutil.copytree(run / "checkpoint-9", tmp_path / "kept")
    found = find_resume(run, str(elsewhere))
    assert found is not None
    assert (found.path, found.step) == (elsewhere, 9)


def test_a_path_that_is_not_verified_is_refused_with_every_problem(run: Path) -> None:
    break_it(run / "checkpoint-10")
    (run / "checkpoint-10" / "ranks.pt").unlink()
    with pytest.raises(ConfigError) as raised:
        find_resume(run, str(run / "checkpoint-10"))
    assert raised.value.exit_code == ExitCode.CONFIG
    assert "ranks.pt: is not there" in str(raised.value)
    assert "optimizer.pt: 1 bytes" in str(raised.value)
    with pytest.raises(ConfigError, match="is not there"):
        find_resume(run, str(run / "checkpoint-77"))


def test_a_run_folder_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"--output_dir .*file cannot be used"):
        find_resume(tmp_path / "file", "auto")


def test_choosing_looks_at_no_more_candidates_than_it_needs() -> None:
    broken = Candidate(Path("c"), 3, (Problem("a", Fault.MISSING, "is not there"),))
    good = Candidate(Path("b"), 2, ())

    def candidates() -> Iterator[Candidate]:
        yield broken
        yield good
        raise AssertionError("looked further")

    assert choose(candidates()) == (good, (broken,))
    assert choose([broken]) == (None, (broken,))
    assert choose([]) == (None, ())


def test_cleaning_removes_leftovers_and_nothing_else(run: Path) -> None:
    for name in (
        ".staging-checkpoint-11-0123abcd",
        ".removed-checkpoint-3-0123abcd",
        ".replaced-checkpoint-9-0123abcd",
    ):
        (run / name).mkdir()
        (run / name / "file").touch()
    kept = run / ".staging-of-somebody-else"
    kept.mkdir()
    gone = clean_staging(run)
    assert len(gone) == 3
    assert sorted(path.name for path in run.iterdir()) == [kept.name, "checkpoint-10", "checkpoint-9"]
    assert clean_staging(run / "not there") == ()


def test_cleaning_gives_a_set_aside_checkpoint_its_name_back(run: Path) -> None:
    (run / "checkpoint-10").rename(run / ".replaced-checkpoint-10-0123abcd")
    clean_staging(run)
    found = find_resume(run, "auto")
    assert found is not None
    assert found.path == run / "checkpoint-10"


def test_the_state_reads_back_as_it_was_saved(run: Path) -> None:
    loaded, saved = load(run / "checkpoint-10", 0, 1), make_state(10)
    assert (loaded.step, loaded.cursor, loaded.world_size) == (10, {"epoch": 0, "row": 40}, 1)
    assert loaded.scheduler_state == saved.scheduler_state
    assert loaded.rank_state["raw"] == b"\0x"
    assert loaded.rank_state["python"] == [3, [1, 2], None]
    torch.testing.assert_close(loaded.rank_state["torch"], saved.rank_state["torch"], rtol=0, atol=0)
    moments = loaded.optimizer_state["state"]
    assert isinstance(moments, dict)
    torch.testing.assert_close(moments[0]["exp_avg"], torch.arange(6.0), rtol=0, atol=0)
    demand_settings(loaded, saved.settings)


def test_another_number_of_ranks_is_refused_with_what_going_on_would_mean(run: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        load(run / "checkpoint-10", 0, 2)
    told = str(raised.value)
    assert "world size of 1 and this run has 2: start 1 instead" in told
    assert "--allow_world_size_change" in told
    assert "not bit-identical" in told


def test_an_allowed_other_number_of_ranks_keeps_row_and_optimizer_but_no_ranks_random_numbers(run: Path) -> None:
    state = load(run / "checkpoint-10", 1, 2, allow_world_size_change=True)
    assert (state.step, state.cursor, state.world_size) == (10, {"epoch": 0, "row": 40}, 1)
    assert state.rank_state == {}
    assert state.optimizer_state["param_groups"] == [{"lr": 2e-4}]
    same = load(run / "checkpoint-10", 0, 1, allow_world_size_change=True)
    assert same.rank_state["raw"] == b"\0x"


def test_nothing_but_tensors_and_plain_values_is_unpacked(run: Path) -> None:
    torch.save({"ranks": [Path("/")]}, run / "checkpoint-10" / "ranks.pt")
    with pytest.raises(ConfigError, match=r"ranks\.pt cannot be read"):
        load(run / "checkpoint-10", 0, 1)


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "ranks.pt", "trainer_state.json"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"{}", b"[1]"])
def test_a_file_that_cannot_be_understood_is_named(run: Path, name: str, content: bytes) -> None:
    (run / "checkpoint-10" / name).write_bytes(content)
    with pytest.raises(ConfigError, match=name):
        load(run / "checkpoint-10", 0, 1)


def test_every_setting_that_differs_is_named_with_both_values() -> None:
    state = make_state(10)
    wanted = {**state.settings, "learning_rate": 1e-4, "packing": True}
    del wanted["seed"]
    with pytest.raises(ConfigError) as raised:
        demand_settings(state, wanted)
    told = str(raised.value)
    assert "learning_rate: 0.0002 in the checkpoint, 0.0001 now" in told
    assert "packing: absent in the checkpoint, True now" in told
    assert "seed: 0 in the checkpoint, absent now" in told
    assert "betas" not in told
    demand_settings(replace(state, settings={}), {})


def test_other_data_are_told_in_words_beside_their_hashes() -> None:
    state = make_state(10)
    state = replace(state, settings={**state.settings, "data": "abc"})
    with pytest.raises(ConfigError, match=r"data: 'abc' in the checkpoint, 'def' now .*held out for evaluation"):
        demand_settings(state, {**state.settings, "data": "def"})
