"""The thread that looks for drift: at its start, on news, by the clock, and not after its end."""

import threading
import time

from clockgated.tuning import watch
from clockgated.tuning.watch import DriftWatch


class Looks:
    """Counts how often it was looked; `is_anything` is what each look finds in force."""

    def __init__(self, *, is_anything: bool = False) -> None:
        self.count = 0
        self.is_anything = is_anything
        self._changed = threading.Condition()

    def __call__(self) -> bool:
        with self._changed:
            self.count += 1
            self._changed.notify_all()
        return self.is_anything

    def reach(self, count: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.count >= count, timeout=20)


def test_it_looks_at_the_start_on_news_and_by_the_clock() -> None:
    looks = Looks()
    watched = DriftWatch(looks, 3600, lambda: None)
    watched.start()
    assert looks.reach(1)
    watched.look_soon()
    assert looks.reach(2)
    watched.poll_s = 0.1
    watched.look_soon()
    assert looks.reach(5)
    assert watched.stop(20)


def test_after_its_end_it_looks_no_more() -> None:
    looks = Looks()
    watched = DriftWatch(looks, 0.01, lambda: None)
    watched.start()
    assert looks.reach(1)
    assert watched.stop(20)
    seen = looks.count
    time.sleep(0.1)
    assert looks.count == seen


def test_one_that_never_began_ends_as_well() -> None:
    assert DriftWatch(Looks(), 1, lambda: None).stop(0)


def test_a_flapping_link_does_not_keep_a_processor_busy() -> None:
    looks = Looks()
    watched = DriftWatch(looks, 3600, lambda: None)
    watched.start()
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        watched.look_soon()
        time.sleep(0.02)
    assert watched.stop(20)
    assert looks.count <= 4


def test_driver_settings_are_listened_to_once_something_is_applied() -> None:
    asked: list[str] = []

    def group() -> int | None:
        asked.append("asked")
        return None

    looks = Looks()
    watched = DriftWatch(looks, 0.01, group)
    watched.start()
    assert looks.reach(2)
    assert asked == []
    looks.is_anything = True
    assert looks.reach(looks.count + 3)
    assert watched.stop(20)
    assert len(asked) == 1


def test_without_a_group_nothing_more_is_listened_to() -> None:
    assert watch.listen(16) == ()
