import threading
import time

import pytest
from clockgated.clock.model import Reading
from clockgated.publish import Publisher
from support.readings import reading


def test_the_newest_reading_is_there_at_once() -> None:
    publisher = Publisher(reading(sequence=0))
    assert publisher.latest().sequence == 0
    newest = reading(sequence=3)
    publisher.publish(newest)
    assert publisher.latest() is newest


@pytest.mark.parametrize("sequence", [4, 5])
def test_a_second_writer_is_refused(sequence: int) -> None:
    publisher = Publisher(reading(sequence=5))
    with pytest.raises(ValueError, match="only one cycle may publish"):
        publisher.publish(reading(sequence=sequence))
    assert publisher.latest().sequence == 5


def test_who_already_knows_the_newest_waits_until_the_time_is_up() -> None:
    publisher = Publisher(reading(sequence=5))
    began = time.monotonic()
    assert publisher.wait_newer(5, 0.1) is None
    assert time.monotonic() - began >= 0.1
    assert publisher.wait_newer(5, 0) is None


def test_who_knows_an_older_one_is_answered_at_once() -> None:
    publisher = Publisher(reading(sequence=5))
    newer = publisher.wait_newer(4, 0)
    assert newer is not None
    assert newer.sequence == 5


def waiting(publisher: Publisher, sequence: int, got: list[Reading | None]) -> threading.Thread:
    thread = threading.Thread(target=lambda: got.append(publisher.wait_newer(sequence, 30)))
    thread.start()
    return thread


def test_all_who_wait_are_woken_by_one_reading() -> None:
    publisher = Publisher(reading(sequence=5))
    got: list[Reading | None] = []
    threads = [waiting(publisher, 5, got) for _ in range(4)]
    newest = reading(sequence=6)
    publisher.publish(newest)
    for thread in threads:
        thread.join(20)
    assert got == [newest] * 4


def test_all_who_wait_are_woken_with_nothing_on_close() -> None:
    publisher = Publisher(reading(sequence=5))
    got: list[Reading | None] = []
    threads = [waiting(publisher, 5, got) for _ in range(4)]
    publisher.close()
    for thread in threads:
        thread.join(20)
    assert got == [None] * 4
    assert publisher.wait_newer(0, 30) is None
    assert publisher.latest().sequence == 5
