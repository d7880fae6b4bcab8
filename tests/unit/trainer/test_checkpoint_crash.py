"""A machine that goes dark between any two operations of a save still has a whole checkpoint."""

import itertools
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from clockgate_trainer.checkpoint.best import read_best
from clockgate_trainer.checkpoint.files import HOST
from clockgate_trainer.checkpoint.resume import clean_staging, find_resume
from clockgate_trainer.checkpoint.verify import verify
from support.checkpoints import FragileDisk, PowerCut, adapter_value, make_store, save

MANY = 200
Prepare = Callable[[Path], None]


def after_one(folder: Path) -> None:
    """Checkpoint 1 stands, 2 is about to be saved and 1 to leave."""
    save_before(folder, 1, 1.0, score=0.7)


def beside_a_broken_one(folder: Path) -> None:
    save_before(folder, 1, 1.0)
    save_before(folder, 2, 1.5)
    (folder / "checkpoint-2" / "optimizer.pt").write_bytes(b"?")


def in_place_of_another(folder: Path) -> None:
    """The only checkpoint has the name that the new one gets."""
    save_before(folder, 2, 1.0)


def save_before(folder: Path, step: int, value: float, score: float | None = None) -> None:
    assert save(make_store(folder, FragileDisk(folder)), step, value, score=score).saved


def renamed(disk: FragileDisk) -> int:
    """The number of the operation that brought the new checkpoint's name to disk."""
    names = [operation.split()[-1] for operation in disk.operations]
    return names.index("checkpoint-2") + 1 if "checkpoint-2" in names else MANY


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


CUTS = {
    "between operations, what is not on disk torn": (False, "torn"),
    "between operations, what is not on disk kept": (False, "kept"),
    "within an operation, what is not on disk torn": (True, "torn"),
    "within an operation, what is not on disk empty": (True, "empty"),
}


@pytest.mark.parametrize(("torn", "contents"), CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("prepare", [after_one, beside_a_broken_one, in_place_of_another])
def test_every_cut_leaves_the_old_or_the_new_checkpoint_verified(
    prepare: Prepare, torn: bool, contents: str, tmp_path: Path
) -> None:
    seen = set()
    for cut in range(MANY):
        finished = False
        for kept in itertools.count():
            folder = tmp_path / f"{cut}-{kept}"
            folder.mkdir()
            prepare(folder)
            disk = FragileDisk(folder, cut_after=cut, torn=torn)
            try:
                finished = save(make_store(folder, disk, limit=1), 2, 2.0, score=0.5).saved
            except PowerCut:
                assert len(disk.operations) == cut
            loose = len(disk.loose)
            disk.lose_power(kept, contents)

            found = find_resume(folder, "auto")
            assert found is not None, (cut, kept, disk.operations)
            assert verify(found.path) == ()
            seen.add(adapter_value(found.path))
            assert adapter_value(found.path) in (1.0, 2.0)
            assert not finished or adapter_value(found.path) == 2.0
            best = read_best(HOST, folder)
            assert best is None or verify(folder / best.checkpoint) == ()
            clean_staging(folder)
            assert hidden(folder) == []
            assert find_resume(folder, "auto") == found
            if kept >= loose:
                break
        if finished:
            break
    assert finished
    assert cut > 15
    assert seen == {1.0, 2.0}


def test_everything_is_on_disk_before_its_name_and_nothing_leaves_before_that(tmp_path: Path) -> None:
    after_one(tmp_path)
    disk = FragileDisk(tmp_path)
    assert save(make_store(tmp_path, disk, limit=1), 2, 2.0, score=0.5).saved
    told = [re.sub(r"-[0-9a-f]{8}\b", "-X", operation) for operation in disk.operations]
    assert told == [
        "make_folder .staging-checkpoint-2-X",
        "sync_file adapter_config.json",
        "sync_file adapter_model.safetensors",
        "write optimizer.pt",
        "write scheduler.pt",
        "write ranks.pt",
        "write trainer_state.json",
        "write manifest.json",
        "sync_folder .staging-checkpoint-2-X",
        "rename .staging-checkpoint-2-X checkpoint-2",
        f"sync_folder {tmp_path.name}",
        "write .draft-best.json-X",
        "replace .draft-best.json-X best.json",
        f"sync_folder {tmp_path.name}",
        "rename checkpoint-1 .removed-checkpoint-1-X",
        "remove_tree .removed-checkpoint-1-X",
    ]
    # Whether the old one's new name survives a crash does not matter: it is of no worth under either.
    assert [one.source.name for one in disk.loose] == ["checkpoint-1"]


@pytest.mark.parametrize("prepare", [after_one, beside_a_broken_one, in_place_of_another])
def test_an_operation_that_fails_is_a_result_and_leaves_a_verified_checkpoint(prepare: Prepare, tmp_path: Path) -> None:
    for number in range(MANY):
        folder = tmp_path / str(number)
        folder.mkdir()
        prepare(folder)
        disk = FragileDisk(folder, fail_at=number)
        events: list[str] = []
        result = save(make_store(folder, disk, limit=1, events=events), 2, 2.0, score=0.5)
        if len(disk.operations) <= number:
            break
        failed = disk.operations[number]
        if "remove_tree" in failed or "removed" in failed or "best" in failed or number > renamed(disk):
            assert result.saved
            assert "checkpoint_not_removed" in "".join(events)
        else:
            assert not result.saved
            assert "No space left on device (errno 28)" in result.reason
            assert result.ranks == (0,)
            assert "checkpoint_failed" in "".join(events)
            assert not [name for name in hidden(folder) if name.startswith(".staging")]
            assert [path for path in folder.glob("checkpoint-*") if not verify(path)]
        found = find_resume(folder, "auto")
        assert found is not None
        assert adapter_value(found.path) in (1.0, 2.0)
        # The run goes on, and its next save works.
        assert save(make_store(folder, FragileDisk(folder)), 3, 3.0).saved
        newest = find_resume(folder, "auto")
        assert newest is not None
        assert newest.step == 3
    assert number > 12


def test_a_cut_while_a_set_aside_checkpoint_gets_its_name_back_loses_nothing(tmp_path: Path) -> None:
    for cut in range(MANY):
        folder = tmp_path / str(cut)
        folder.mkdir()
        in_place_of_another(folder)
        with pytest.raises(PowerCut):
            save(make_store(folder, FragileDisk(folder, cut_after=10)), 2, 2.0)
        assert sorted(name[:9] for name in hidden(folder)) == [".replaced", ".staging-"]
        disk = FragileDisk(folder, cut_after=cut)
        with suppress(PowerCut):
            clean_staging(folder, disk)
        found = find_resume(folder, "auto")
        assert found is not None
        assert adapter_value(found.path) == 1.0
        if len(disk.operations) < cut:
            break
    assert cut > 2
