import pytest
from clockgated.clock.model import ReasonCode
from clockgated.clock.witness import KernelLook, KernelState
from clockgated.steering.leftover import leftover_frequency, leftover_notice


def look(freq_ppm: float, tick_us: int = 10_000) -> KernelLook:
    return KernelLook(0, freq_ppm * 1_000, tick_us, 0, KernelState.OK)


@pytest.mark.parametrize(("freq_ppm", "tick_us"), [(0, 10_000), (-499, 10_000), (120, 10_003), (500, 10_000)])
def test_corrections_of_a_sane_oscillator_are_left_alone(freq_ppm: float, tick_us: int) -> None:
    assert leftover_frequency(look(freq_ppm, tick_us)) is None
    assert leftover_notice(look(freq_ppm, tick_us), was_reset=False) is None


@pytest.mark.parametrize(("freq_ppm", "tick_us"), [(501, 10_000), (0, 11_000), (-400, 9_998)])
def test_what_a_servo_left_at_its_end_is_told(freq_ppm: float, tick_us: int) -> None:
    assert leftover_frequency(look(freq_ppm, tick_us)) is not None


def test_notice_says_what_became_of_it() -> None:
    kept, reset = (leftover_notice(look(0, 11_000), was_reset=was) for was in (False, True))
    assert kept is not None
    assert reset is not None
    assert kept.code is reset.code is ReasonCode.LEFTOVER_FREQUENCY
    assert "+100000 ppm" in kept.detail
    assert "for lack of the right to set the clock" in kept.detail
    assert "set back to 0" in reset.detail


def test_a_kernel_that_cannot_be_read_leaves_nothing_to_say() -> None:
    assert leftover_frequency(None) is None
