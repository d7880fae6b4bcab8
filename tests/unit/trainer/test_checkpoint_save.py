import json
import math
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from clockgate.v1 import clock_pb2
from clockgate_trainer.checkpoint.best import Best, Score, beats, read_best
from clockgate_trainer.checkpoint.digest import digest_int64, digest_tensors
from clockgate_trainer.checkpoint.files import HOST, FileDigest, HostFiles
from clockgate_trainer.checkpoint.manifest import AgreedTime, Disruption, Manifest, from_json
from clockgate_trainer.checkpoint.publish import Standing, surplus
from clockgate_trainer.checkpoint.resume import load
from clockgate_trainer.checkpoint.save import Exchange, SaveResult, Store, odd_ranks, save_checkpoint
from clockgate_trainer.checkpoint.verify import verify
from clockgate_trainer.gate.model import ABSENT, Flags, Kind, Row, SaveVerdict
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
    # A bound of 1 ms: the time is the latest edge, and the checkpoint got its name after it was past.
    assert manifest.agreed_time == AgreedTime(make_row().sent_wall_ns + 1_000_000, 1_000_000, "relative", True)
    assert (manifest.agreed_time_absent_because, manifest.unverified_wall_ns) == (None, None)
    assert sorted(manifest.files) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "optimizer.pt",
        "ranks.pt",
        "scheduler.pt",
        "trainer_state.json",
    ]
    assert "checkpoint_saved" in "".join(events)


def manifest_of(folder: Path, step: int) -> Manifest:
    return from_json((folder / f"checkpoint-{step}" / "manifest.json").read_bytes())


def test_a_checkpoint_gets_its_name_only_when_its_time_is_past(tmp_path: Path) -> None:
    bound_ns = 40_000_000
    gate = FakeGate(changes={"relative_bound_ns": bound_ns})
    decided_mono_ns = time.monotonic_ns()
    seen_ns: list[int] = []

    class Watching(HostFiles):
        def rename(self, source: Path, target: Path) -> None:
            seen_ns.append(time.monotonic_ns() - decided_mono_ns)
            super().rename(source, target)

    assert save(make_store(tmp_path, Watching()), 5, 1.0, gate).saved
    assert seen_ns[0] >= 2 * bound_ns
    agreed = manifest_of(tmp_path, 5).agreed_time
    assert agreed is not None
    assert agreed.waited_out


@pytest.mark.parametrize("place", ["step", "save vote"])
def test_an_untimed_save_says_why(tmp_path: Path, place: str) -> None:
    untimed = {"save_verdict": SaveVerdict.SAVE_UNTIMED, "reasons": 1 << clock_pb2.REASON_CODE_SOURCE_UNREACHABLE}
    gate = FakeGate(changes=untimed if place == "save vote" else {})
    decision = make_decision(5, replace(make_row(step=5), **(untimed if place == "step" else {})))
    assert save(make_store(tmp_path), 5, 1.0, gate, decision=decision).saved
    manifest = manifest_of(tmp_path, 5)
    assert manifest.agreed_time is None
    assert manifest.unverified_wall_ns == make_row().sent_wall_ns
    assert "SAVE_UNTIMED (SOURCE_UNREACHABLE)" in (manifest.agreed_time_absent_because or "")


def test_a_disruption_since_the_last_checkpoint_is_recorded(tmp_path: Path) -> None:
    for step, epoch in ((1, 3), (2, 3), (3, ABSENT), (4, 5), (5, 5)):
        decision = make_decision(step, make_row(step=step, epoch=epoch))
        assert save(make_store(tmp_path), step, float(step), decision=decision).saved
    found = {step: manifest_of(tmp_path, step).disruptions for step in range(1, 6)}
    assert found == {1: (), 2: (), 3: (), 4: (Disruption(0, 3, 5),), 5: ()}


def test_best_json_points_to_the_best_score_and_retention_spares_it(tmp_path: Path) -> None:
    events: list[str] = []
    for step, loss in ((1, 0.5), (2, 0.3), (3, 0.4), (4, math.nan), (5, None)):
        assert save(make_store(tmp_path, limit=1, events=events), step, float(step), score=loss).saved
    assert read_best(HOST, tmp_path) == Best("checkpoint-2", 2, "loss", 0.3, False)
    assert names(tmp_path) == ["best.json", "checkpoint-2", "checkpoint-5"]
    assert sum("best_checkpoint" in event for event in events) == 2
    assert save(make_store(tmp_path, limit=1), 6, 6.0, score=0.2).saved
    assert names(tmp_path) == ["best.json", "checkpoint-6"]


@pytest.mark.parametrize("damage", ["gone", "broken", "no json", "no double", "elsewhere"])
def test_a_best_checkpoint_that_does_not_stand_is_beaten_by_any(tmp_path: Path, damage: str) -> None:
    assert save(make_store(tmp_path), 1, 1.0, score=0.1).saved
    if damage == "gone":
        shutil.rmtree(tmp_path / "checkpoint-1")
    elif damage == "broken":
        (tmp_path / "checkpoint-1" / "ranks.pt").write_bytes(b"?")
    elif damage == "no json":
        (tmp_path / "best.json").write_bytes(b"{")
    elif damage == "no double":
        content = json.loads((tmp_path / "best.json").read_text())
        (tmp_path / "best.json").write_text(json.dumps({**content, "value": 10**400}))
    else:
        content = json.loads((tmp_path / "best.json").read_text())
        (tmp_path / "best.json").write_text(json.dumps({**content, "checkpoint": "../checkpoint-1"}))
    assert save(make_store(tmp_path), 2, 2.0, score=0.9).saved
    best = read_best(HOST, tmp_path)
    assert best is not None
    assert best.checkpoint == "checkpoint-2"


@pytest.mark.parametrize(
    ("score", "holder", "wins"),
    [
        (Score("loss", 1.0), None, True),
        (Score("loss", math.inf), None, False),
        (Score("loss", 1.0), Best("checkpoint-1", 1, "loss", 1.0, False), False),
        (Score("loss", 0.9), Best("checkpoint-1", 1, "loss", 1.0, False), True),
        (Score("accuracy", 0.9, True), Best("checkpoint-1", 1, "accuracy", 0.8, True), True),
        (Score("accuracy", 0.7, True), Best("checkpoint-1", 1, "accuracy", 0.8, True), False),
        (Score("accuracy", 0.7, True), Best("checkpoint-1", 1, "loss", 0.1, False), True),
    ],
)
def test_a_better_score_takes_the_place(score: Score, holder: Best | None, wins: bool) -> None:
    assert beats(score, holder) is wins


def test_a_best_json_that_cannot_be_written_costs_no_checkpoint(tmp_path: Path) -> None:
    class NoReplace(HostFiles):
        def replace(self, source: Path, target: Path) -> None:
            raise OSError(5, "Input/output error", str(target))

    events: list[str] = []
    assert save(make_store(tmp_path, NoReplace(), events=events), 1, 1.0, score=0.1).saved
    assert "Input/output error" in events[0]
    assert read_best(HOST, tmp_path) is None


def test_writers_that_wrote_different_states_make_no_checkpoint(tmp_path: Path) -> None:
    def other_state(own: Row) -> Sequence[Row]:
        return [replace(own, content_digest=own.content_digest ^ 1) if own.kind == Kind.COMMIT else own]

    store = replace(make_store(tmp_path), world_size=2, writers=(0, 1))
    result = save_two(store, FakeGate(others=other_state), lambda own: [own, own])
    assert (result.saved, result.ranks) == (False, (0, 1))
    assert "another optimizer state" in result.reason
    assert names(tmp_path) == []


def test_different_adapters_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    gate = FakeGate(others=lambda own: [own, replace(own, content_digest=1)])
    events: list[str] = []
    result = save(replace(make_store(tmp_path, events=events), world_size=3), 5, 1.0, gate)
    assert (result.saved, result.path, result.ranks) == (False, None, (2,))
    assert (result.diverged, result.source_rank) == (True, 0)
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
def test_surplus_never_names_the_newest_the_best_or_the_one_just_saved(
    steps: set[int], limit: int, data: st.DataObject
) -> None:
    standing = [Standing(Path(f"checkpoint-{step}"), step) for step in data.draw(st.permutations(sorted(steps)))]
    saved = data.draw(st.sampled_from(standing))
    best = data.draw(st.sampled_from(standing))
    doomed = surplus(standing, limit, {saved.path, best.path})
    assert saved.path not in doomed
    assert best.path not in doomed
    assert Path(f"checkpoint-{max(steps)}") not in doomed
    left = len(standing) - len(doomed)
    assert left == len(standing) if limit == 0 else min(limit, len(standing)) <= left <= limit + 2


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
