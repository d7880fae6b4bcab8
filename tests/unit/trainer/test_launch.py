"""The launcher's pure parts: whose arguments are whose, and one exit code for all ranks."""

from pathlib import Path

import pytest
from clockgate_trainer import launch
from clockgate_trainer.ending import Ending, Standing, complete, judge, with_checkpoint
from clockgate_trainer.errors import UsageError
from clockgate_trainer.flags.table import FLAGS
from clockgate_trainer.launch import newest_checkpoint, split
from clockgate_trainer.outcome import Outcome
from hypothesis import given
from hypothesis import strategies as st
from support.checkpoints import make_store, save
from torch.distributed import run as torchrun

KILLED, TERMED, SEGFAULT = -9, -15, -11
CODES = st.dictionaries(
    st.integers(0, 7), st.sampled_from([1, 2, 75, 76, 77, 78, 79, 120, KILLED, TERMED, SEGFAULT]), max_size=5
)


@pytest.mark.parametrize(
    ("codes", "code", "ranks"),
    [
        ({}, 0, ()),
        ({0: 75, 1: 75}, 75, ()),
        ({0: 75, 1: TERMED}, 75, ()),
        ({0: 76, 1: 75}, 76, ()),
        ({0: 77, 1: 79}, 77, ()),
        ({0: 79, 1: 78}, 78, (1,)),
        ({0: 2, 1: 2}, 2, (0, 1)),
        ({0: 79, 1: KILLED}, 79, (1,)),
        ({0: TERMED, 1: SEGFAULT}, 79, (1,)),
        ({0: KILLED}, 79, (0,)),
        ({0: TERMED, 1: TERMED}, 79, (0, 1)),
        ({0: 79, 1: 79}, 79, ()),
        ({0: 79, 1: 1}, 79, (1,)),
        ({0: 1, 1: TERMED}, 1, (0,)),
        ({0: 120, 3: 1}, 120, (0, 3)),
    ],
)
def test_one_code_for_all_ranks(codes: dict[int, int], code: int, ranks: tuple[int, ...]) -> None:
    ending = judge(codes, stop_asked=False)
    assert (ending.code, ending.ranks) == (code, ranks)


def test_a_killed_rank_is_named_with_its_signal() -> None:
    assert judge({0: 79, 1: KILLED}, stop_asked=False).reason == "rank 1 was killed by SIGKILL"


def test_ranks_ended_by_a_requested_stop_before_they_could_save_are_no_lost_peers() -> None:
    assert judge({0: TERMED, 1: KILLED}, stop_asked=True).code == 76
    assert not judge({0: TERMED, 1: KILLED}, stop_asked=True).before_start
    assert judge({0: 75, 1: TERMED}, stop_asked=True).code == 75
    assert judge({0: 79, 1: KILLED}, stop_asked=True).code == 79


@pytest.mark.parametrize("codes", [{0: TERMED}, {0: TERMED, 1: TERMED}, {0: 79, 1: TERMED}])
def test_a_stop_before_ranks_were_ready_leaves_what_stood_before(codes: dict[int, int]) -> None:
    ending = judge(codes, stop_asked=True)
    assert (ending.code, ending.before_start) == (76, True)
    assert with_checkpoint(ending, None) == ending
    standing = with_checkpoint(ending, Standing(4, "runs/a/checkpoint-4"))
    assert standing.code == 75
    assert "checkpoint-4 stands" in standing.reason
    other = judge({0: KILLED, 1: TERMED}, stop_asked=True)
    assert with_checkpoint(other, Standing(4, "runs/a/checkpoint-4")) == other


@given(codes=CODES, stop_asked=st.booleans())
def test_the_code_is_one_that_a_rank_gave_or_one_of_the_contract(codes: dict[int, int], stop_asked: bool) -> None:
    ending = judge(codes, stop_asked=stop_asked)
    assert ending.code in {*codes.values(), 76, 79} if codes else ending.code == 0
    assert ending.code >= 0
    assert set(ending.ranks) <= set(codes)
    assert ending.reason


def test_what_a_rank_wrote_is_kept_and_completed() -> None:
    lost = Outcome(79, "the vote of step 3 was lost", step=2, checkpoint="c-2", ranks=())
    assert complete(lost, Ending(79, "a peer died")) == lost
    named = complete(lost, Ending(79, "rank 1 was killed by SIGKILL", (1,)))
    assert (named.code, named.step, named.checkpoint, named.ranks) == (79, 2, "c-2", (1,))
    assert named.reason == "rank 1 was killed by SIGKILL (the vote of step 3 was lost)"
    other = complete(lost, Ending(78, "rank 0 ended with 78", (0,)))
    assert (other.code, other.ranks) == (78, (0,))
    assert complete(lost, Ending(0, "all ranks are done")) == lost
    assert complete(None, Ending(0, "all ranks are done")) == Outcome(0, "all ranks are done", None, None, ())


def test_the_launcher_names_the_newest_checkpoint_when_no_rank_lived_to_do_so() -> None:
    killed = Ending(79, "rank 1 was killed by SIGKILL", (1,))
    standing = Standing(4, "runs/a/checkpoint-4")
    assert complete(None, killed, standing) == Outcome(79, killed.reason, 4, "runs/a/checkpoint-4", (1,))
    known = Outcome(79, "lost", step=6, checkpoint="c-6", ranks=(1,))
    assert complete(known, killed, standing) == known


def test_the_newest_checkpoint_is_the_highest_step_with_a_manifest(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) is None
    store = make_store(tmp_path)
    for step in (2, 10):
        assert save(store, step, 1.0).saved
    (tmp_path / "checkpoint-30").mkdir()
    assert newest_checkpoint(tmp_path) == Standing(10, str(tmp_path / "checkpoint-10"))


def test_words_go_to_torchrun_by_name_and_after_two_dashes_to_training() -> None:
    argv = ["--nproc_per_node", "2", "--output_dir", "runs/a", "--standalone", "--learning_rate", "-1e-4"]
    torch_words, train_words = split([*argv, "--nnodes=1", "--", "--nnodes", "7"])
    assert torch_words == ["--nproc_per_node", "2", "--standalone", "--nnodes=1"]
    assert train_words == ["--output_dir", "runs/a", "--learning_rate", "-1e-4", "--nnodes", "7"]


def test_prefixes_are_not_guessed() -> None:
    assert split(["--nproc", "2"]) == ([], ["--nproc", "2"])


@pytest.mark.parametrize("word", ["-m", "--module", "--no-python", "--run-path"])
def test_another_program_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="use torchrun"):
        split([word, "x"])


def test_no_flag_of_ours_is_taken_by_torchrun() -> None:
    names = {name for action in torchrun.get_args_parser()._actions for name in action.option_strings}
    ours = {f"--{name}" for flag in FLAGS for name in (flag.name, *flag.aliases)}
    assert not names & ours


@given(st.lists(st.text(max_size=8), max_size=6))
def test_splitting_loses_no_word(words: list[str]) -> None:
    torch_words, train_words = split(["--", *words])
    assert (torch_words, train_words) == ([], words)


def test_a_wrong_flag_is_told_once_before_any_rank_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main(["--nproc_per_node", "2", "--learning_rat", "1"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("clockgate-train launch: ")
    assert "learning_rate" in told


@pytest.mark.parametrize("argv", [["--nproc_per_node", "many"], ["--nnodes", "x"], ["--max_restarts", "x"]])
def test_a_wrong_launch_argument_is_a_usage_error(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.run("support.rank_program", argv) == 2
    assert "clockgate-train launch" in capsys.readouterr().err


def test_help_shows_both_kinds_of_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main(["--help"]) == 0
    told = capsys.readouterr().out
    assert "--nproc-per-node" in told
    assert "TRAIN FLAGS" in told
