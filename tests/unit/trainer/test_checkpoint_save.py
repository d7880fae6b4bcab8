import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from clockgate_trainer.checkpoint.digest import digest_int64, digest_tensors
from clockgate_trainer.checkpoint.files import FileDigest, HostFiles
from clockgate_trainer.checkpoint.manifest import from_json
from clockgate_trainer.checkpoint.publish import Standing, surplus
from clockgate_trainer.checkpoint.resume import load
from clockgate_trainer.checkpoint.save import Exchange, SaveResult, Store, odd_ranks, save_checkpoint
from clockgate_trainer.checkpoint.verify import verify
from clockgate_trainer.gate.model import ABSENT, Flags, Kind, Row
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checkpoints import (
    FakeGate,
    FragileDisk,
    adapter_value,
    make_adapter,
    make_decision,
    make_row,
    make_state,
    make_store,
    save,
    write_adapter,
)

SHA = digest_tensors(make_adapter(1.0))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_is_voted_on_written_and_committed(tmp_path: Path) -> None:
    gate = FakeGate()
    events: list[str] = []
    result = save(make_store(tmp_path, events=events), 5, 1.0, gate)
    assert result == SaveResult(tmp_path / "checkpoint-5", saved=True, reason="all ranks agree")
    assert names(tmp_path) == ["checkpoint-5"]
    assert [(vote.kind, vote.step) for vote in gate.votes] == [(Kind.SAVE, 5), (Kind.COMMIT, 5), (Kind.COMMIT, 5)]
    manifest_bytes = (tmp_path / "checkpoint-5" / "manifest.json").read_bytes()
    assert gate.votes[0].content_digest == digest_int64(SHA)
    assert gate.votes[1].content_digest not in (ABSENT, gate.votes[0].content_digest)
    manifest = from_json(manifest_bytes)
    assert (manifest.step, manifest.world_size, manifest.adapter_sha256) == (5, 1, SHA)
    assert manifest.unverified_wall_ns == make_row().sent_wall_ns
    assert sorted(manifest.files) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "optimizer.pt",
        "ranks.pt",
        "scheduler.pt",
        "trainer_state.json",
    ]
    assert "checkpoint_saved" in "".join(events)


def test_different_adapters_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    gate = FakeGate(others=lambda own: [own, replace(own, content_digest=1)])
    events: list[str] = []
    result = save(replace(make_store(tmp_path, events=events), world_size=3), 5, 1.0, gate)
    assert (result.saved, result.path, result.ranks) == (False, None, (2,))
    assert "rank 2" in result.reason
    assert names(tmp_path) == []
    assert [vote.kind for vote in gate.votes] == [Kind.SAVE]
    assert "CRITICAL" in events[0]


def test_adapters_whose_full_digests_differ_are_not_saved(tmp_path: Path) -> None:
    def exchange(own: object) -> list[object]:
        assert hasattr(own, "adapter_sha256")
        return [own, replace(own, adapter_sha256=SHA[:-1] + "x")]  # type: ignore[type-var]

    store = replace(make_store(tmp_path), world_size=2)
    result = save_two(store, FakeGate(others=lambda own: [replace(own, flags=0)]), exchange)
    assert not result.saved
    assert "2 different adapters" in result.reason
    assert names(tmp_path) == []


def save_two(store: Store, gate: FakeGate, exchange: Exchange, rank: int = 0) -> SaveResult:
    return save_checkpoint(
        store,
        gate,
        make_decision(5, make_row(), make_row()),
        make_state(5, rank, world_size=2),
        write_adapter=write_adapter(1.0),
        adapter_sha256=SHA,
        exchange=exchange,
    )


def test_each_rank_gets_its_own_state_back(tmp_path: Path) -> None:
    sent: list[object] = []

    def send(own: object) -> None:
        sent.append(own)

    other_gate = FakeGate(rank=1, others=lambda own: [replace(own, flags=Flags.NONE)])
    other = save_two(Store(tmp_path, 1, 2, 0), other_gate, send, rank=1)
    assert names(tmp_path) == []
    mine = save_two(Store(tmp_path, 0, 2, 0), FakeGate(others=lambda own: [own]), lambda own: [own, *sent])
    assert mine.saved
    assert other == mine
    for rank in (0, 1):
        state = load(tmp_path / "checkpoint-5", rank, 2).rank_state["torch"]
        assert isinstance(state, torch.Tensor)
        assert state.tolist() == [rank, 5]


def test_a_rank_hears_that_rank_0_could_not_write(tmp_path: Path) -> None:
    def rank_0_failed(own: Row) -> Sequence[Row]:
        return [replace(own, flags=Flags.SAVE_FAILED if own.kind == Kind.COMMIT else Flags.NONE)]

    result = save_two(Store(tmp_path, 1, 2, 0), FakeGate(rank=1, others=rank_0_failed), lambda own: None, rank=1)
    assert (result.saved, result.ranks) == (False, (0,))
    assert "rank 0 could not write it" in result.reason


def test_a_rank_hears_that_the_rename_failed(tmp_path: Path) -> None:
    gate = FakeGate(rank=1)

    def second_commit_fails(own: Row) -> Sequence[Row]:
        return [replace(own, flags=Flags.SAVE_FAILED if len(gate.votes) == 3 else Flags.NONE)]

    gate.others = second_commit_fails
    result = save_two(Store(tmp_path, 1, 2, 0), gate, lambda own: None, rank=1)
    assert len(gate.votes) == 3
    assert not result.saved


def test_another_ranks_veto_drops_what_was_written(tmp_path: Path) -> None:
    def rank_1_fails(own: Row) -> Sequence[Row]:
        return [replace(own, flags=Flags.SAVE_FAILED if own.kind == Kind.COMMIT else Flags.NONE)]

    result = save_two(Store(tmp_path, 0, 2, 0), FakeGate(others=rank_1_fails), lambda own: [own, own])
    assert (result.saved, result.ranks) == (False, (1,))
    assert names(tmp_path) == []


def test_an_exchange_that_loses_a_rank_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="exchange gave 1 states"):
        save_two(Store(tmp_path, 0, 2, 0), FakeGate(others=lambda own: [own]), lambda own: [own])


def test_a_signal_that_arrives_meanwhile_does_not_spoil_the_save(tmp_path: Path) -> None:
    gate = FakeGate(others=lambda own: [replace(own, flags=Flags.SAVE_AND_EXIT)])
    assert save_two(Store(tmp_path, 0, 2, 0), gate, lambda own: [own, own]).saved


def test_the_same_checkpoint_is_kept_and_not_written_again(tmp_path: Path) -> None:
    assert save(make_store(tmp_path), 5, 1.0).saved
    before = (tmp_path / "checkpoint-5" / "manifest.json").read_bytes()
    disk = FragileDisk(tmp_path)
    assert save(make_store(tmp_path, disk), 5, 1.0).saved
    assert disk.operations == []
    assert (tmp_path / "checkpoint-5" / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("damage", ["other adapter", "broken", "no manifest", "empty folder"])
def test_a_folder_in_the_way_is_replaced_unless_it_is_the_same(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "checkpoint-5"
    if damage == "empty folder":
        path.mkdir()
    else:
        save(make_store(tmp_path), 5, 2.0 if damage == "other adapter" else 1.0)
    if damage == "broken":
        (path / "ranks.pt").write_bytes(b"?")
    if damage == "no manifest":
        (path / "manifest.json").unlink()
    assert save(make_store(tmp_path), 5, 1.0).saved
    assert verify(path) == ()
    assert adapter_value(path) == 1.0
    assert names(tmp_path) == ["checkpoint-5"]


class LyingDisk(HostFiles):
    """Returns something else than was written."""

    def digest(self, path: Path) -> FileDigest:
        return FileDigest("0" * 64, 1) if path.name == "optimizer.pt" else super().digest(path)


def test_a_disk_that_returns_something_else_fails_the_save(tmp_path: Path) -> None:
    result = save(make_store(tmp_path, LyingDisk()), 5, 1.0)
    assert not result.saved
    assert "something else than was written" in result.reason
    assert "optimizer.pt" in result.reason
    assert names(tmp_path) == []


def test_a_file_in_the_way_fails_the_save_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-5").touch()
    result = save(make_store(tmp_path), 5, 1.0)
    assert not result.saved
    assert "checkpoint-5" in result.reason
    assert names(tmp_path) == ["checkpoint-5"]


def test_rotation_goes_by_step_when_the_clock_was_set_back(tmp_path: Path) -> None:
    for step in (10, 20):
        save(make_store(tmp_path), step, float(step))
    # The clock was an hour ahead when the first two were saved: by time the newest one is the oldest.
    for file in [tmp_path / "checkpoint-10", tmp_path / "checkpoint-20"]:
        status = file.stat()
        os.utime(file, (status.st_atime + 3600, status.st_mtime + 3600))
    assert save(make_store(tmp_path, limit=2), 30, 30.0).saved
    assert names(tmp_path) == ["checkpoint-20", "checkpoint-30"]


def test_rotation_leaves_what_is_not_a_whole_checkpoint_alone(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(make_store(tmp_path), step, float(step))
    (tmp_path / "checkpoint-1" / "manifest.json").unlink()
    (tmp_path / "checkpoint-2" / "optimizer.pt").unlink()
    (tmp_path / "other").mkdir()
    assert save(make_store(tmp_path, limit=1), 4, 4.0).saved
    assert names(tmp_path) == ["checkpoint-1", "checkpoint-2", "checkpoint-4", "other"]


@settings(deadline=None)
@given(st.sets(st.integers(0, 50), min_size=1), st.integers(0, 8), st.data())
def test_surplus_never_names_the_newest_or_the_one_just_saved(steps: set[int], limit: int, data: st.DataObject) -> None:
    standing = [Standing(Path(f"checkpoint-{step}"), step) for step in data.draw(st.permutations(sorted(steps)))]
    saved = data.draw(st.sampled_from(standing))
    doomed = surplus(standing, limit, saved.path)
    assert saved.path not in doomed
    assert Path(f"checkpoint-{max(steps)}") not in doomed
    left = len(standing) - len(doomed)
    assert left == len(standing) if limit == 0 else min(limit, len(standing)) <= left <= limit + 1


def test_the_trainer_state_is_readable_text(tmp_path: Path) -> None:
    save(make_store(tmp_path), 5, 1.0)
    content = json.loads((tmp_path / "checkpoint-5" / "trainer_state.json").read_text())
    assert content["step"] == 5
    assert content["cursor"] == {"epoch": 0, "row": 20}
    assert content["settings"]["betas"] == [0.9, 0.999]


@pytest.mark.parametrize(
    ("digests", "odd"),
    [
        ((5,), ()),
        ((5, 5, 5), ()),
        ((5, 6, 5), (1,)),
        ((5, 6), (0, 1)),
        ((5, 6, 7), (0, 1, 2)),
        ((5, 5, 6, 6), (0, 1, 2, 3)),
        ((6, 5, 5, 5, 7), (0, 4)),
    ],
)
def test_the_ranks_outside_the_majority_are_odd(digests: tuple[int, ...], odd: tuple[int, ...]) -> None:
    assert odd_ranks(digests) == odd


def test_the_digest_tells_names_types_shapes_and_bits_apart() -> None:
    ones = torch.ones(2, 3)
    cases = [
        {"a": ones},
        {"b": ones},
        {"a": ones.reshape(3, 2)},
        {"a": ones.to(torch.bfloat16)},
        {"a": ones.view(torch.int32)},
        {"a": ones, "b": ones},
        {"a": torch.zeros(2, 3)},
        {"a": -torch.zeros(2, 3)},
        {"a": torch.empty(0, 3)},
        {"a": torch.tensor(1.0)},
        {"a": torch.tensor([True])},
        {},
    ]
    assert len({digest_tensors(case) for case in cases}) == len(cases)


def test_the_digest_does_not_depend_on_order_layout_or_gradients() -> None:
    tensor = torch.arange(6.0).reshape(2, 3)
    plain = digest_tensors({"a": tensor, "b": tensor.t()})
    again = {"b": tensor.t().contiguous(), "a": torch.nn.Parameter(tensor.t().contiguous().t())}
    assert digest_tensors(again) == plain


def test_the_short_digest_fits_a_row() -> None:
    assert digest_int64("f" * 64) == 2**63 - 1
    assert digest_int64("8" + "0" * 15 + "f" * 48) == 0
    assert digest_int64("0" * 15 + "1" + "0" * 48) == 1
