"""A real chronyd dates its samples, and drops them when it is told to."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from clockgated.clock.bound import BoundPolicy
from clockgated.clock.model import Evidence
from clockgated.sources.chronyc import ChronycSource
from support.chrony import chrony_pair
from support.evidence import SECOND
from support.tools import require_tool

pytestmark = pytest.mark.integration
WAIT_S = 30.0


def wait_for(source: ChronycSource, wanted: Callable[[Evidence], bool]) -> Evidence:
    due_s = time.monotonic() + WAIT_S
    while True:
        measured = source.read()
        assert isinstance(measured, Evidence), measured
        if wanted(measured):
            return measured
        assert time.monotonic() < due_s, measured
        time.sleep(0.05)


def test_samples_age_until_chronyd_is_told_to_drop_them(tmp_path: Path) -> None:
    with chrony_pair(tmp_path) as pair:
        source = ChronycSource(
            pair.client.socket, BoundPolicy(), "boot", timeout_s=10, program=str(require_tool("chronyc"))
        )
        # Two seconds of that are what chronyc rounds off.
        old = wait_for(source, lambda one: (one.oldest_sample_ns or 0) >= 5 * SECOND)
        assert not old.faults
        assert old.last_offset_ns is not None
        assert source.forget()
        told_s = time.monotonic()
        anew = wait_for(source, lambda one: one.bound_ns is not None and one.update_id != old.update_id)
        assert anew.oldest_sample_ns is not None
        assert anew.oldest_sample_ns <= (time.monotonic() - told_s + 3) * SECOND
