"""Tiers and skips, in one place: unit tests need nothing, `integration` tests need root and network namespaces."""

import pytest
from hypothesis import HealthCheck, settings
from support.tools import lacking_for_namespaces, missing

# Machines that run tests are busy: how long one example takes says nothing about the code.
settings.register_profile("clockgate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("clockgate")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("integration") is not None:
        lacking = lacking_for_namespaces()
        if lacking is not None:
            missing(f"an integration test {lacking}")
