import json
import os
import shutil
from pathlib import Path

import pytest
from clockgate_trainer.checkpoint.verify import Fault, verify
from clockgate_trainer.checkpoint.verify_command import main
from support.checkpoints import make_store, save

ADAPTER = "adapter_model.safetensors"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = save(make_store(tmp_path), 2, 1.0).path
    assert path == tmp_path / "checkpoint-2"
    return path


def faults(path: Path) -> list[tuple[str, Fault]]:
    return [(problem.file, problem.fault) for problem in verify(path)]


def flip_a_byte(path: Path, place: int = 20) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_a_saved_checkpoint_is_verified(checkpoint: Path) -> None:
    assert verify(checkpoint) == ()


def test_one_flipped_bit_is_named(checkpoint: Path) -> None:
    flip_a_byte(checkpoint / "optimizer.pt")
    assert faults(checkpoint) == [("optimizer.pt", Fault.CONTENT)]


def test_a_truncated_a_missing_and_an_unreadable_file_are_all_named(checkpoint: Path) -> None:
    os.truncate(checkpoint / ADAPTER, 10)
    (checkpoint / "ranks.pt").unlink()
    (checkpoint / "scheduler.pt").unlink()
    (checkpoint / "scheduler.pt").mkdir()
    assert faults(checkpoint) == [
        (ADAPTER, Fault.SIZE),
        ("ranks.pt", Fault.MISSING),
        ("scheduler.pt", Fault.UNREADABLE),
    ]


@pytest.mark.timeout(10)
def test_a_pipe_in_the_place_of_a_file_does_not_hang(checkpoint: Path) -> None:
    (checkpoint / "ranks.pt").unlink()
    os.mkfifo(checkpoint / "ranks.pt")
    assert faults(checkpoint) == [("ranks.pt", Fault.UNREADABLE)]


def test_a_link_in_the_place_of_a_file_is_not_followed(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "ranks.pt").rename(tmp_path / "elsewhere")
    (checkpoint / "ranks.pt").symlink_to(tmp_path / "elsewhere")
    assert faults(checkpoint) == [("ranks.pt", Fault.UNREADABLE)]


@pytest.mark.parametrize(
    ("content", "fault"), [(None, Fault.MISSING), (b"{", Fault.MALFORMED), (b"{}", Fault.MALFORMED)]
)
def test_a_missing_or_malformed_manifest_is_the_problem(checkpoint: Path, content: bytes | None, fault: Fault) -> None:
    manifest = checkpoint / "manifest.json"
    manifest.unlink()
    if content is not None:
        manifest.write_bytes(content)
    assert faults(checkpoint) == [("manifest.json", fault)]


def test_what_is_no_folder_is_a_problem_too(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert faults(tmp_path / "nothing") == [("manifest.json", Fault.MISSING)]
    assert faults(tmp_path / "file") == [("manifest.json", Fault.MISSING)]


def test_a_file_that_somebody_added_is_not_judged(checkpoint: Path) -> None:
    (checkpoint / "NOTES").touch()
    assert verify(checkpoint) == ()


def test_the_command_verifies_a_checkpoint_and_a_run_folder(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(make_store(checkpoint.parent), 10, 2.0)
    assert main([str(checkpoint)]) == 0
    assert f"{checkpoint}: verified: step 2, 1 rank, 6 files" in capsys.readouterr().out
    assert main([str(checkpoint.parent)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in told] == [str(checkpoint), str(checkpoint.with_name("checkpoint-10"))]


def test_the_command_names_every_problem_and_exits_1(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip_a_byte(checkpoint / "optimizer.pt")
    (checkpoint / ADAPTER).unlink()
    assert main([str(checkpoint)]) == 1
    told = capsys.readouterr().out
    assert f"{checkpoint}: NOT VERIFIED" in told
    assert f"  {ADAPTER}: is not there" in told
    assert "  optimizer.pt: sha256" in told


def test_a_checkpoint_under_another_steps_name_is_a_finding(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    renamed = checkpoint.rename(checkpoint.with_name("checkpoint-8"))
    assert main([str(renamed)]) == 1
    assert "is of step 2, and the folder's name says 8" in capsys.readouterr().out
    assert main([str(renamed.rename(checkpoint.with_name("the-best")))]) == 0


def test_the_command_speaks_json(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(checkpoint, checkpoint.with_name("checkpoint-3"))
    (checkpoint.with_name("checkpoint-3") / ADAPTER).unlink()
    assert main(["--json", str(checkpoint.parent)]) == 1
    good, bad = json.loads(capsys.readouterr().out)
    assert good == {"path": str(checkpoint), "verified": True, "step": 2, "problems": []}
    assert bad["verified"] is False
    assert [(each["file"], each["fault"]) for each in bad["problems"]] == [
        ("manifest.json", "STEP"),
        (ADAPTER, "MISSING"),
    ]


def test_the_command_exits_1_where_there_is_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    assert "neither a checkpoint nor a run folder" in capsys.readouterr().out
    assert main([str(tmp_path / "nothing")]) == 1


@pytest.mark.parametrize("argv", [[], ["--nonsense", "x"]])
def test_the_command_exits_2_when_called_wrongly(argv: list[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main(argv)
    assert ending.value.code == 2
