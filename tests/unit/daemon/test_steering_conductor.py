import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from clockgated.clock.model import Reason, ReasonCode
from clockgated.manage.facts import Facts
from clockgated.manage.planned import Plan
from clockgated.manage.settings import Mode
from clockgated.steering.conductor import Conductor
from clockgated.steering.prepare import Prepared
from clockgated.steering.steward import Told
from clockgated.supervise.base import ChildStatus
from clockgated.supervise.supervisor import SuperviseStatus

REASON = Reason(ReasonCode.TIME_DAEMON_DOWN, "down")
STATUS = SuperviseStatus((ChildStatus("chronyd", 42, running=True),), (), ())


class FakeSteward:
    """Takes orders and remembers the threads that it ran on."""

    def __init__(self) -> None:
        self.orders: list[Prepared] = []
        self.steps = 0
        self.threads: set[str] = set()
        self.told = Told(STATUS, (REASON,), needs_plan=True, runs_anything=False)
        self.has_ended = False
        self.has_begun = threading.Event()
        self.hold = threading.Event()
        self.hold.set()

    def carry_out(self, prepared: Prepared) -> None:
        self.has_begun.set()
        self.hold.wait(10)
        self.orders.append(prepared)

    def step(self) -> Told:
        self.steps += 1
        self.threads.add(threading.current_thread().name)
        return self.told

    def end(self) -> None:
        self.has_ended = True


def order(mode: Mode) -> Prepared:
    return Prepared(Plan(mode, ()), Facts())


def wait_until(is_true: Callable[[], bool]) -> None:
    due = time.monotonic() + 10
    while not is_true():
        assert time.monotonic() < due
        time.sleep(0.01)


@pytest.fixture
def steward() -> FakeSteward:
    return FakeSteward()


@pytest.fixture
def conductor(steward: FakeSteward) -> Iterator[Conductor]:
    fake: Any = steward
    made = Conductor(fake)
    yield made
    steward.hold.set()
    made.end()
    assert made.join(10)


def test_orders_are_carried_out_on_a_thread_of_its_own(steward: FakeSteward, conductor: Conductor) -> None:
    conductor.carry_out(order(Mode.NTP))
    wait_until(lambda: steward.orders == [order(Mode.NTP)])
    assert steward.threads == {"steering"}


def test_what_was_found_is_read_from_any_thread(steward: FakeSteward, conductor: Conductor) -> None:
    conductor.carry_out(order(Mode.NTP))
    wait_until(lambda: conductor.reasons() == (REASON,))
    assert conductor.pid_of("chronyd") == 42
    assert conductor.pid_of("ptp4l@eth0") is None
    wait_until(lambda: conductor.needs_plan)


def test_the_newest_of_waiting_orders_wins(steward: FakeSteward, conductor: Conductor) -> None:
    steward.hold.clear()
    conductor.carry_out(order(Mode.NTP))
    wait_until(lambda: not conductor._wake.is_set())
    conductor.carry_out(order(Mode.PTP))
    conductor.carry_out(order(Mode.PTP_NTP))
    assert not conductor.needs_plan, "another one is on its way"
    steward.hold.set()
    wait_until(lambda: steward.orders == [order(Mode.NTP), order(Mode.PTP_NTP)])


def test_nothing_to_run_costs_no_steps(steward: FakeSteward, conductor: Conductor) -> None:
    wait_until(lambda: steward.steps == 1)
    time.sleep(1.2)
    assert steward.steps == 1


def test_the_end_is_the_stewards(steward: FakeSteward, conductor: Conductor) -> None:
    conductor.end()
    assert conductor.join(10)
    assert steward.has_ended
    assert not conductor.is_alive()
