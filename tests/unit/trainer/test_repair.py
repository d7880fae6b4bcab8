import io
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from clockgate_trainer.__main__ import main as trainer_main
from clockgate_trainer.checkpoint.claim import claimed
from clockgate_trainer.checkpoint.files import HOST
from clockgate_trainer.checkpoint.repair import Deed, Inspection, Seen, carry_out, inspect, left_verified, plan_repair
from clockgate_trainer.checkpoint.repair_command import main
from clockgate_trainer.checkpoint.resume import find_resume
from clockgate_trainer.checkpoint.verify import verify
from hypothesis import given
from hypothesis import strategies as st
from support.checkpoints import FragileDisk, PowerCut, make_store, save
from support.tools import ROOT

STAGING = ".staging-checkpoint-4-0123abcd"
REMOVED = ".removed-checkpoint-1-0123abcd"
ASIDE = ".replaced-checkpoint-3-0123abcd"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """What a bad day leaves: 2 stands, 3 is broken with a good one set aside, 4 half written, 1 half removed."""
    folder = tmp_path / "run"
    for step in (1, 2, 3):
        assert save(make_store(folder), step, float(step), score=0.5 - step / 10).saved
    shutil.copytree(folder / "checkpoint-3", folder / ASIDE)
    (folder / "checkpoint-3" / "ranks.pt").unlink()
    (folder / STAGING).mkdir()
    (folder / "checkpoint-1").rename(folder / REMOVED)
    (folder / ".draft-best.json-0123abcd").touch()
    (folder / f".mark-{'0' * 32}").touch()
    (folder / "events.jsonl").touch()
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_everything_is_put_in_order_and_no_checkpoint_is_lost(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run)]) == 0
    told = capsys.readouterr().out
    (quarantined,) = run.glob("quarantined-*")
    assert f"quarantine checkpoint-3 to {quarantined.name}: ranks.pt: is not there" in told
    assert f"put back {ASIDE} to checkpoint-3" in told
    assert f"remove folder {STAGING}: it was never committed" in told
    assert told.endswith(f"{run}: 2 verified checkpoints\n")
    assert names(run) == ["best.json", "checkpoint-2", "checkpoint-3", "events.jsonl", quarantined.name]
    assert verify(run / "checkpoint-3") == ()
    found = find_resume(run, "auto")
    assert found is not None
    assert (found.step, found.passed_over) == (3, ())
    assert main([str(run)]) == 0
    assert capsys.readouterr().out == f"{run}: 2 verified checkpoints, nothing to do\n"


def test_a_dry_run_says_the_same_and_changes_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = names(run)
    assert main(["--dry-run", str(run)]) == 1
    assert "would quarantine checkpoint-3 to quarantined-checkpoint-3-" in capsys.readouterr().out
    assert names(run) == before
    assert main(["--dry-run", "--json", str(run)]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["verified"] == [str(run / "checkpoint-2")]
    assert [action["deed"] for action in told["actions"]] == [
        "QUARANTINE",
        "REMOVE_FOLDER",
        "PUT_BACK",
        "REMOVE_FOLDER",
        "REMOVE_FILE",
        "REMOVE_FILE",
    ]
    assert told["actions"][0]["problem"] is None


def test_a_folder_that_a_run_holds_is_left_alone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = names(run)
    with claimed(run):
        assert main([str(run)]) == 78
    assert "is in use by another run" in capsys.readouterr().err
    assert names(run) == before
    assert main([str(run / "events.jsonl")]) == 78
    assert "name a run folder" in capsys.readouterr().err


def test_a_folder_without_a_verified_checkpoint_exits_1_and_says_what_that_means(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 0
    assert "no verified checkpoint: the next start begins anew" in capsys.readouterr().out
    assert save(make_store(tmp_path), 1, 1.0, score=1.0).saved
    (tmp_path / "checkpoint-1" / "ranks.pt").write_bytes(b"?")
    assert main([str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert "remove file best.json: it names checkpoint-1, which is not verified" in told
    assert "no verified checkpoint" in told
    assert [name.rpartition("-")[0] for name in names(tmp_path)] == ["quarantined-checkpoint-1"]


def test_what_cannot_be_done_is_told_and_exits_1(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(HOST, "remove_tree", refuse)
    assert main([str(run)]) == 1
    told = capsys.readouterr().out
    assert "FAILED: Read-only file system (errno 30)" in told
    assert "put back" in told


def test_the_command_is_one_of_the_trainers(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trainer_main(["repair", str(run)]) == 0
    assert "2 verified checkpoints" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ending:
        trainer_main(["repair"])
    assert ending.value.code == 2


def test_a_repair_that_is_cut_anywhere_loses_nothing_and_is_finished_by_the_next(run: Path, tmp_path: Path) -> None:
    for cut in range(50):
        folder = tmp_path / f"cut-{cut}"
        shutil.copytree(run, folder)
        disk = FragileDisk(folder, cut_after=cut)
        finished = False
        try:
            for action in plan_repair(inspect(disk, folder)):
                carry_out(disk, action)
            finished = True
        except PowerCut:
            disk.lose_power(cut % 2)
        again = inspect(HOST, folder)
        for action in plan_repair(again):
            carry_out(HOST, action)
        found = find_resume(folder, "auto")
        assert found is not None
        assert (found.step, found.passed_over) == (3, ())
        assert plan_repair(inspect(HOST, folder)) == ()
        if finished:
            break
    assert finished
    assert cut > 8


def test_the_page_about_checkpoints_shows_what_the_commands_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Path("run")
    for step in (10, 15, 20):
        assert save(make_store(run), step, float(step), score=1.0 / step).saved
    with (run / "checkpoint-20" / "optimizer.pt").open("ab") as file:
        file.write(b"x")
    (run / ".staging-checkpoint-25-0123abcd").mkdir()
    assert trainer_main(["verify", "run"]) == 1
    assert trainer_main(["repair", "--dry-run", "run"]) == 1
    block = (ROOT / "docs" / "checkpoints.md").read_text(encoding="utf-8").split("```")[1]
    shown = [line for line in block.splitlines() if line and not line.startswith("$")]
    assert [_shape(line) for line in shown] == [_shape(line) for line in capsys.readouterr().out.splitlines()]


def _shape(line: str) -> str:
    """A line without what depends on the size of the model and on chance."""
    return re.sub(r"quarantined-checkpoint-20-[0-9a-f]{8}|[0-9][0-9,]* (ranks?|files|bytes)|wanted [0-9,]+", "#", line)


FOLDERS = st.sampled_from(["checkpoint-1", "checkpoint-2", STAGING, REMOVED, ASIDE, ".replaced-checkpoint-1-0123abcd"])
SEEN = st.builds(Seen, FOLDERS.map(lambda name: Path("run") / name), st.sampled_from([(), ("a: is not there",)]))


@given(st.lists(SEEN, unique_by=lambda seen: seen.path), st.sampled_from([None, "checkpoint-1", "checkpoint-3"]))
def test_no_plan_touches_a_verified_checkpoint_or_gives_a_name_twice(folders: list[Seen], best: str | None) -> None:
    inspection = Inspection(tuple(folders), best_file=Path("run/best.json") if best else None, best=best)
    actions = plan_repair(inspection)
    assert not {action.path for action in actions} & set(inspection.verified)
    standing = left_verified(inspection, actions)
    assert len(standing) == len(set(standing))
    for action in actions:
        assert (action.target is None) == (action.deed in (Deed.REMOVE_FOLDER, Deed.REMOVE_FILE))
    removed = {seen for seen in folders if Path(seen.path) in {a.path for a in actions if a.deed is Deed.REMOVE_FOLDER}}
    for seen in removed:
        if seen.path.name.startswith(".replaced") and not seen.problems:
            assert Path("run") / seen.path.name.split("-0123")[0].removeprefix(".replaced-") in standing


def test_one_checkpoint_is_not_taken_for_a_run_folder(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run / "checkpoint-2")]) == 78
    assert f"is one checkpoint: name the run folder that it is in ({run})" in capsys.readouterr().err
    assert verify(run / "checkpoint-2") == ()
    assert ".lock" not in {path.name for path in (run / "checkpoint-2").iterdir()}


def test_folder_whose_name_is_no_text_is_repaired_and_told_about(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = run.rename(run.with_name(os.fsdecode(b"ru\xffn")))
    heard = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", heard)
        assert trainer_main(["repair", str(odd)]) == 0
        assert trainer_main(["verify", str(odd)]) == 0
    assert "ru\\udcffn: 2 verified checkpoints" in heard.buffer.getvalue().decode()


def test_link_in_the_place_of_a_leftover_is_told_about(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(run / STAGING)
    (run / STAGING).symlink_to("checkpoint-2")
    assert main([str(run)]) == 1
    told = capsys.readouterr().out
    assert f"remove folder {STAGING}: it was never committed; FAILED: Cannot call rmtree on a symbolic link" in told
    assert verify(run / "checkpoint-2") == ()
