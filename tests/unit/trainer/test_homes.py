import fcntl
from pathlib import Path

import pytest
from clockgate_trainer.checkpoint.claim import LOCK_FILE, claimed
from clockgate_trainer.checkpoint.resume import Found
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.train.distributed import Meeting, Place
from clockgate_trainer.train.homes import Homes, Offer, choose_source, find_homes
from hypothesis import given
from hypothesis import strategies as st


def offer(step: int, content: str = "a") -> Offer:
    return Offer(Found(Path(f"run/checkpoint-{step}"), step), f"{step}{content}")


def test_the_newest_checkpoint_of_any_folder_is_taken() -> None:
    assert choose_source({0: offer(10), 2: offer(20), 4: Offer()}) == 2
    assert choose_source({0: offer(20), 2: offer(20)}) == 0
    assert choose_source({0: Offer(problem="all broken"), 2: offer(5)}) == 2
    assert choose_source({0: Offer(), 2: Offer()}) is None


def test_problems_count_only_when_no_folder_has_anything() -> None:
    with pytest.raises(ConfigError, match="rank 2: all broken"):
        choose_source({0: Offer(), 2: Offer(problem="all broken")})


def test_different_checkpoints_of_the_newest_step_are_refused_with_their_places() -> None:
    with pytest.raises(ConfigError, match=r"ranks 0 and 2 hold different checkpoints of step 20.*run/checkpoint-20"):
        choose_source({0: offer(20), 1: offer(20), 2: offer(20, "b")})
    assert choose_source({0: offer(10, "b"), 1: offer(10), 2: offer(20)}) == 2


@given(st.dictionaries(st.integers(0, 9), st.one_of(st.just(Offer()), st.integers(1, 5).map(offer)), min_size=1))
def test_whatever_is_taken_is_the_newest_and_of_the_lowest_rank_that_has_it(offers: dict[int, Offer]) -> None:
    steps = {rank: one.found.step for rank, one in offers.items() if one.found is not None}
    source = choose_source(offers)
    if source is None:
        assert not steps
    else:
        assert steps[source] == max(steps.values())
        assert source == min(rank for rank, step in steps.items() if step == steps[source])


def test_writers_are_the_lowest_ranks_of_the_folders() -> None:
    assert Homes((0, 0, 2, 2)).writers == (0, 2)
    assert not Homes((0, 0, 2, 2)).shared
    assert Homes((0, 0, 0)).shared


def test_a_rank_that_is_alone_has_a_home_and_leaves_no_mark(tmp_path: Path) -> None:
    place = Place(0, 1, 0, 1)
    assert find_homes(Meeting(place, 5), place, tmp_path) == Homes((0,))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match="cannot be written"):
        find_homes(Meeting(place, 5), place, tmp_path / "not there")


def test_a_folder_is_claimed_once_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with claimed(folder), pytest.raises(ConfigError, match=r"in use by another run .*\.lock"), claimed(folder):
        raise AssertionError("claimed twice")
    with claimed(folder):
        pass
    with (folder / LOCK_FILE).open("rb") as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        with pytest.raises(ConfigError, match="in use"), claimed(folder):
            raise AssertionError("claimed what somebody looks at")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="give another --output_dir"), claimed(tmp_path / "file"):
        raise AssertionError("claimed a file")
