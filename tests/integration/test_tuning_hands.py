"""Knobs of real links and real per-namespace sysctls, with the oldest pyroute2 that is supported and the newest."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.daemon import environment
from support.oldest import oldest_python
from support.tools import ROOT
from support.veth import namespaces

# The oldest runtime is installed once.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", params=["oldest", "current"])
def seen(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    python = oldest_python() if request.param == "oldest" else Path(sys.executable)
    program = Path(__file__).parents[1] / "support/tuning_hands.py"
    with namespaces() as (place, _):
        here = Path("/proc/self/ns/net").stat().st_ino
        done = subprocess.run(
            place.command(str(python), "-W", "error", str(program), str(here)),
            capture_output=True, text=True, check=False, timeout=50,
            env=environment(PYTHONPATH=f"{ROOT / 'daemon'}:{ROOT / 'protos'}"),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        yield json.loads(done.stdout)


def test_a_link_is_set_and_set_back(seen: dict[str, Any]) -> None:
    assert seen["mtu"] == ["1500", "1400", "!failed", "1500"]
    assert seen["channels"] == ["1", "2", "!failed", "1"]


def test_what_a_driver_does_not_offer_is_unsupported(seen: dict[str, Any]) -> None:
    assert seen["rings"] == ["!unsupported", "!unsupported"]
    assert seen["eee"] == ["!unsupported", "!unsupported"]


@pytest.mark.parametrize("name", ["tap0", "tap1"])
def test_a_default_queueing_discipline_is_replaced_and_comes_back_exactly(seen: dict[str, Any], name: str) -> None:
    first, replaced, unknown, back = seen[name]

    assert (first, replaced, back) == ("pfifo_fast", "pfifo", "pfifo_fast")
    assert unknown.startswith("!")
    assert seen[f"{name} as it was"]


def test_a_queueing_discipline_of_an_administrator_is_left_alone(seen: dict[str, Any]) -> None:
    assert seen["an administrator's"] == ["htb", "!failed"]


def test_sysctls_of_a_namespace(seen: dict[str, Any]) -> None:
    assert seen["sysctl"] == ["1", "0", "1"]
    assert seen["read-only"][1] == "!read_only"
    assert seen["absent here"] == ["!gone", "!gone"]


def test_a_word_that_the_kernel_does_not_know_is_heard_of(seen: dict[str, Any]) -> None:
    # A buffered write would report success here.
    assert seen["unknown word"][1] == "!unsupported"


def test_another_namespace_is_never_written(seen: dict[str, Any]) -> None:
    assert seen["another namespace"] == ["!failed", "!failed"]


def test_a_link_is_known_by_more_than_its_name(seen: dict[str, Any]) -> None:
    assert seen["another link"] == ["!gone", "!gone"]
    assert seen["renamed"] == ["1500", "1400"]
    assert seen["file of a link"] == ["0", "1", "0"]
    assert seen["file of a renamed link"] == ["0", "1"]


def test_what_answers_is_told_from_what_does_not(seen: dict[str, Any]) -> None:
    answering = ["10.77.0.2", "::1", "gateway 10.77.0.2"]

    assert seen["reached"] == answering
    assert seen["reached in full size"] == answering
    # The other end of a veth pair takes no more than its own MTU: small echoes pass, full ones do not.
    assert seen["reached in a size that the other end does not take"] == ["::1"]
