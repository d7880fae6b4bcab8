"""What an administrator does with grpcurl, by reflection alone."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Clockgated, clockgated, ctl, toml
from support.tools import require_tool

pytestmark = pytest.mark.integration

CODES = {"INVALID_ARGUMENT": 64 + 3, "NOT_FOUND": 64 + 5, "UNIMPLEMENTED": 64 + 12}
RECORDED = '{"after_s": 0, "bound_ns": 200000, "identity": "ntp:192.0.2.1", "stratum": 2}\n'


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clockgated]:
    folder = tmp_path_factory.mktemp("grpcurl")
    (folder / "recorded.jsonl").write_text(RECORDED)
    config = toml(
        folder,
        clock='source = "recorded"\npoll_interval_s = 0.1\nsync_cycles = 1',
        extra=f'[recorded]\nfile = "{folder / "recorded.jsonl"}"',
    )
    with clockgated(folder, config) as running:
        yield running


def grpcurl(socket: Path, *words: str, data: Any = None) -> subprocess.CompletedProcess[str]:
    body = [] if data is None else ["-d", json.dumps(data)]
    program = str(require_tool("grpcurl"))
    line = [program, "-plaintext", "-unix", "-max-time", "10", *body, str(socket), *words]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=30)


def answer(socket: Path, method: str, data: Any = None) -> Any:
    ran = grpcurl(socket, method, data=data)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_list_shows_the_services_of_each_socket(daemon: Clockgated) -> None:
    read = {
        "clockgate.v1.Clock", "clockgate.v1.Gate", "clockgate.v1.Node", "clockgate.v1.Tuning", "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection",
    }  # fmt: skip
    assert set(grpcurl(daemon.socket, "list").stdout.split()) == read
    assert set(grpcurl(daemon.admin_socket, "list").stdout.split()) == read | {"clockgate.v1.Admin"}


def test_list_of_a_service_shows_its_methods(daemon: Clockgated) -> None:
    ran = grpcurl(daemon.socket, "list", "clockgate.v1.Clock")
    methods = ("GetReading", "ListEpochs", "WatchReadings")
    assert ran.stdout.split() == [f"clockgate.v1.Clock.{method}" for method in methods]


@pytest.mark.parametrize(
    ("symbol", "comment"),
    [
        ("clockgate.v1.Clock", "It never blocks on a measurement"),
        ("clockgate.v1.Clock.GetReading", "Returns the newest reading at once"),
        ("clockgate.v1.Reading", "Half-width, ns, of the interval around CLOCK_REALTIME"),
        ("clockgate.v1.ClockState", "The source is lost or in a leap second"),
        ("clockgate.v1.Limits", "Above this pairwise bound, ns, the step verdict is WARN."),
    ],
)
def test_describe_prints_documented_fields(daemon: Clockgated, symbol: str, comment: str) -> None:
    ran = grpcurl(daemon.socket, "describe", symbol)
    assert ran.returncode == 0, ran.stderr
    assert comment in ran.stdout


def test_get_reading_answers(daemon: Clockgated) -> None:
    reading = answer(daemon.socket, "clockgate.v1.Clock/GetReading")["reading"]
    assert reading["state"] == "CLOCK_STATE_SYNCHRONIZED"
    assert int(reading["relativeBoundNs"]) >= 200_000


def test_health_answers_two_questions(daemon: Clockgated) -> None:
    for service in ("", "clockgate.v1.Clock", "clockgate.v1.Gate"):
        said = answer(daemon.socket, "grpc.health.v1.Health/Check", {"service": service})
        assert said == {"status": "SERVING"}
    ran = grpcurl(daemon.socket, "grpc.health.v1.Health/Check", data={"service": "no.Such"})
    assert ran.returncode == CODES["NOT_FOUND"]


def test_check_answers_a_verdict(daemon: Clockgated) -> None:
    limits = {"warnNs": 5_000_000, "holdNs": 50_000_000}
    said = answer(daemon.socket, "clockgate.v1.Gate/Check", {"limits": limits, "job": "j", "rank": 0, "step": 1})
    assert (said["stepVerdict"], said["saveVerdict"]) == ("STEP_VERDICT_PROCEED", "SAVE_VERDICT_SAVE")


@pytest.mark.parametrize(
    ("request_data", "problem"),
    [
        ({}, "limits: missing"),
        ({"limits": {"warnNs": 0, "holdNs": 5}}, "limits.warn_ns = 0"),
        ({"limits": {"warnNs": 9, "holdNs": 5}}, "wanted at most hold_ns = 5"),
    ],
)
def test_check_refuses_limits_that_mean_nothing(daemon: Clockgated, request_data: Any, problem: str) -> None:
    ran = grpcurl(daemon.socket, "clockgate.v1.Gate/Check", data=request_data)
    assert ran.returncode == CODES["INVALID_ARGUMENT"]
    assert problem in ran.stderr


def test_drill_is_refused_on_the_read_socket_and_done_on_the_admin_socket(daemon: Clockgated) -> None:
    request = {"freezeSource": {}, "durationNs": 1_000_000_000}
    assert grpcurl(daemon.socket, "clockgate.v1.Admin/Drill", data=request).returncode == CODES["UNIMPLEMENTED"]
    refused = ctl("drill", "--admin-address", str(daemon.socket), "clear")
    assert refused.returncode == 2
    assert "drills are served on the admin socket only" in refused.stderr
    said = answer(daemon.admin_socket, "clockgate.v1.Admin/Drill", request)
    assert int(said["endsBootNs"]) > 0
    bad = grpcurl(daemon.admin_socket, "clockgate.v1.Admin/Drill", data={"freezeSource": {}})
    assert bad.returncode == CODES["INVALID_ARGUMENT"]
    assert answer(daemon.admin_socket, "clockgate.v1.Admin/Drill", {"clear": {}})["active"]
