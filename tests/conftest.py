"""Tiers and skips, in one place: unit tests need nothing, `integration` tests need root and network namespaces."""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from support.tools import lacking_for_namespaces, missing

# Machines that run tests are busy: how long one example takes says nothing about the code.
settings.register_profile("clockgate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("clockgate")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has what it starts in the background ignore SIGINT, and children of the tests would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("integration") is not None:
        lacking = lacking_for_namespaces()
        if lacking is not None:
            missing(f"an integration test {lacking}")


@pytest.fixture(autouse=True)
def restored_signals() -> Iterator[None]:
    """Undo what a rank or a launcher that runs within the test's process does to its signals: children inherit it."""
    numbers = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
