"""Places of streams: the first ones answer at once, those behind wait a little, and places are given again."""

from contextlib import ExitStack

from clockgated.service.turns import Turns


def test_as_many_as_the_shipped_ceiling_never_wait_and_the_rest_one_after_the_other() -> None:
    turns = Turns()
    with ExitStack() as stack:
        behind_s = [stack.enter_context(turns.one()) for _ in range(256)]
    assert behind_s[:64] == [0.0] * 64
    assert behind_s[64:] == sorted(behind_s[64:])
    assert 0 < behind_s[66] < behind_s[-1] <= 0.5


def test_a_place_that_is_given_back_is_the_next_one_given() -> None:
    turns = Turns()
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(turns.one())
        with turns.one() as last_s:
            assert last_s > 0
        with turns.one() as again_s:
            assert again_s == last_s
    with turns.one() as first_s:
        assert first_s == 0
