"""A machine that goes dark between any two operations of a save still has a whole checkpoint."""

import itertools
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from clockgate_trainer.checkpoint.resume import clean_staging, find_resume
from clockgate_trainer.checkpoint.verify import verify
from support.checkpoints import FragileDisk, PowerCut, adapter_value, make_store, save

MANY = 200
Prepare = Callable[[Path], None]


def after_one(folder: Path) -> None:
    """Checkpoint 1 stands, 2 is about to be saved and 1 to leave."""
    save_before(folder, 1, 1.0)


def beside_a_broken_one(folder: Path) -> None:
    save_before(folder, 1, 1.0)
    save_before(folder, 2, 1.5)
    (folder / "checkpoint-2" / "optimizer.pt").write_bytes(b"?")


def in_place_of_another(folder: Path) -> None:
    """The only checkpoint has the name that the new one gets."""
    save_before(folder, 2, 1.0)


def save_before(folder: Path, step: int, value: float) -> None:
    assert save(make_store(folder, FragileDisk(folder)), step, value).saved


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("torn", [False, True], ids=["between operations", "within an operation"])
@pytest.mark.parametrize("prepare", [after_one, beside_a_broken_one, in_place_of_another])
def test_every_cut_leaves_the_old_or_the_new_checkpoint_verified(prepare: Prepare, torn: bool, tmp_path: Path) -> None:
    seen = set()
    for cut in range(MANY):
        finished = False
        for kept_renames in itertools.count():
            folder = tmp_path / f"{cut}-{kept_renames}"
            folder.mkdir()
            prepare(folder)
            disk = FragileDisk(folder, cut_after=cut, torn=torn)
            try:
                finished = save(make_store(folder, disk, limit=1), 2, 2.0).saved
            except PowerCut:
                assert len(disk.operations) == cut
            loose = len(disk.loose_renames)
            disk.lose_power(kept_renames)

            found = find_resume(folder, "auto")
            assert found is not None, (cut, kept_renames, disk.operations)
            assert verify(found.path) == ()
            seen.add(adapter_value(found.path))
            assert adapter_value(found.path) in (1.0, 2.0)
            assert not finished or adapter_value(found.path) == 2.0
            clean_staging(folder)
            assert hidden(folder) == []
            assert find_resume(folder, "auto") == found
            if kept_renames >= loose:
                break
        if finished:
            break
    assert finished
    assert cut > 12
    assert seen == {1.0, 2.0}


@pytest.mark.parametrize("prepare", [after_one, beside_a_broken_one, in_place_of_another])
def test_an_operation_that_fails_is_a_result_and_leaves_a_verified_checkpoint(prepare: Prepare, tmp_path: Path) -> None:
    for number in range(MANY):
        folder = tmp_path / str(number)
        folder.mkdir()
        prepare(folder)
        disk = FragileDisk(folder, fail_at=number)
        events: list[str] = []
        result = save(make_store(folder, disk, limit=1, events=events), 2, 2.0)
        if len(disk.operations) <= number:
            break
        failed = disk.operations[number]
        if "remove_tree" in failed or "removed" in failed:
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
