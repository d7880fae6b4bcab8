"""A checkpoint from one rank's folder to others', with the ranks as threads of one process."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from clockgate_trainer.checkpoint.files import Files, HostFiles
from clockgate_trainer.checkpoint.transfer import give, receive, stand_by
from clockgate_trainer.checkpoint.verify import verify
from support.checkpoints import FragileDisk, PowerCut, adapter_value, make_store, save

SOURCE, TARGET, BYSTANDER = range(3)


class Wire:
    """A spread over three threads."""

    def __init__(self, corrupt: bytes = b"") -> None:
        self._meet = threading.Barrier(3, timeout=20)
        self._content: bytes | None = None
        self._corrupt = corrupt

    def of(self, rank: int) -> Callable[..., bytes | None]:
        def spread(content: bytes | None, source: int, *, keep: bool = True) -> bytes | None:
            if rank == source:
                self._content = content
            self._meet.wait()
            heard = self._content
            self._meet.wait()
            if self._corrupt and heard is not None and rank == TARGET:
                heard = heard.replace(self._corrupt, b"?" * len(self._corrupt))
            return heard if keep else None

        return spread


class Outcome:
    """What source and target said; a PowerCut on the target is noted."""

    given: str | None = None
    received: str | None = None
    cut = False


def transfer(source: Path, target: Path, files: Files, *, give_files: Files | None = None, wire: Wire) -> Outcome:
    outcome = Outcome()

    def take() -> None:
        spread = wire.of(TARGET)
        try:
            outcome.received = receive(files, target, spread, SOURCE)
        except PowerCut:
            outcome.cut = True
            wire._meet.abort()

    def stand() -> None:
        stand_by(wire.of(BYSTANDER), SOURCE)

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except threading.BrokenBarrierError:
            return

    def send() -> None:
        outcome.given = give(give_files or HostFiles(), source, wire.of(SOURCE), SOURCE)

    threads = [threading.Thread(target=run, args=(work,)) for work in (send, take, stand)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return outcome


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = save(make_store(tmp_path / "a"), 5, 1.0).path
    assert path is not None
    return path


def test_a_checkpoint_arrives_as_it_was_sent(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "b" / "checkpoint-5"
    outcome = transfer(source, target, HostFiles(), wire=Wire())
    assert (outcome.given, outcome.received) == (None, None)
    assert verify(target) == ()
    assert {path.name: path.read_bytes() for path in source.iterdir()} == {
        path.name: path.read_bytes() for path in target.iterdir()
    }
    assert [path.name for path in target.parent.iterdir()] == ["checkpoint-5"]


def test_a_broken_folder_in_the_way_is_quarantined(source: Path, tmp_path: Path) -> None:
    target = save(make_store(tmp_path / "b"), 5, 2.0).path
    assert target is not None
    (target / "ranks.pt").unlink()
    assert transfer(source, target, HostFiles(), wire=Wire()).received is None
    assert adapter_value(target) == 1.0
    assert [path.name.rpartition("-")[0] for path in target.parent.glob("quarantined-*")] == [
        "quarantined-checkpoint-5"
    ]


def test_a_byte_that_changes_on_the_way_makes_no_checkpoint(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "b" / "checkpoint-5"
    outcome = transfer(source, target, HostFiles(), wire=Wire(corrupt=b"exp_avg"))
    assert "did not arrive as it was sent: optimizer.pt" in (outcome.received or "")
    assert not target.exists()


class NoRoom(HostFiles):
    def write(self, path: Path, content: bytes | memoryview) -> None:
        raise OSError(28, "No space left on device", str(path))


class Unreadable(HostFiles):
    def read(self, path: Path) -> bytes:
        if path.name == "ranks.pt":
            raise OSError(5, "Input/output error", str(path))
        return super().read(path)


def test_a_disk_that_fails_at_either_end_leaves_no_rank_waiting(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "b" / "checkpoint-5"
    full = transfer(source, target, NoRoom(), wire=Wire())
    assert full.given is None
    assert "No space left on device" in (full.received or "")
    broken = transfer(source, target, HostFiles(), give_files=Unreadable(), wire=Wire())
    assert "ranks.pt cannot be read" in (broken.given or "")
    assert "rank 0 could not send ranks.pt" in (broken.received or "")
    assert not target.exists()


def test_a_receiver_that_is_cut_anywhere_has_a_verified_checkpoint_or_none(source: Path, tmp_path: Path) -> None:
    for cut in range(50):
        folder = tmp_path / f"cut-{cut}"
        folder.mkdir()
        disk = FragileDisk(folder, cut_after=cut)
        outcome = transfer(source, folder / "checkpoint-5", disk, wire=Wire())
        for kept in (0, 1):
            disk.lose_power(kept)
            if (folder / "checkpoint-5").exists():
                assert verify(folder / "checkpoint-5") == ()
        if not outcome.cut:
            break
    assert outcome.received is None
    assert cut > 9
