"""The servers as clients see them: real gRPC over real unix sockets, around a reading that the test publishes."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import pytest
from clockgate.v1 import admin_pb2, admin_pb2_grpc, clock_pb2, clock_pb2_grpc, gate_pb2, gate_pb2_grpc
from clockgate.wire import stubs
from clockgated import drill, host
from clockgated.clock.model import ClockState, Reading
from clockgated.config import ApiConfig
from clockgated.publish import Publisher
from clockgated.service.server import Api
from support.readings import reading

MAX_STREAMS = 3
NS_PER_S = 1_000_000_000
LIMITS = gate_pb2.Limits(warn_ns=5_000_000, hold_ns=50_000_000)


def fresh(**changes: Any) -> Reading:
    """A good reading that was measured now."""
    now = host.boot_ns()
    stamps = {"as_of_boot_ns": now, "void_after_boot_ns": now + 60 * NS_PER_S}
    return reading(**{**stamps, **changes})


@dataclass
class Served:
    api: Api
    config: ApiConfig
    publisher: Publisher
    board: drill.DrillBoard
    read: grpc.Channel
    admin: grpc.Channel


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    config = ApiConfig(tmp_path / "c.sock", tmp_path / "admin/a.sock", MAX_STREAMS)
    publisher, board = Publisher(fresh(sequence=1)), drill.DrillBoard()
    api = Api(config, publisher, board)
    with (
        grpc.insecure_channel(f"unix:{config.socket}") as read,
        grpc.insecure_channel(f"unix:{config.admin_socket}") as admin,
    ):
        yield Served(api, config, publisher, board, read, admin)
    api.stop()


def refusal(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    return error.code(), error.details()


def get_reading(channel: grpc.Channel) -> clock_pb2.Reading:
    return clock_pb2_grpc.ClockStub(channel).GetReading(clock_pb2.GetReadingRequest(), timeout=5).reading


def watch(channel: grpc.Channel) -> Any:
    return clock_pb2_grpc.ClockStub(channel).WatchReadings(clock_pb2.WatchReadingsRequest(), timeout=30)


def check(channel: grpc.Channel, **fields: Any) -> gate_pb2.CheckResponse:
    request = gate_pb2.CheckRequest(**{"limits": LIMITS, **fields})
    return gate_pb2_grpc.GateStub(channel).Check(request, timeout=5)


def test_newest_reading_is_answered_with_its_age(served: Served) -> None:
    served.publisher.publish(fresh(sequence=2, as_of_boot_ns=host.boot_ns() - NS_PER_S))
    answer = get_reading(served.read)
    assert answer.sequence == 2
    assert NS_PER_S <= answer.age_ns < 6 * NS_PER_S


def test_watch_sends_now_and_on_every_change(served: Served) -> None:
    stream = watch(served.read)
    assert next(stream).reading.sequence == 1
    asked = time.monotonic()
    served.publisher.publish(fresh(sequence=2, state=ClockState.HOLDOVER))
    changed = next(stream).reading
    while changed.sequence == 1:  # the second that passes without a change may end just before it
        changed = next(stream).reading
    assert changed.state == clock_pb2.CLOCK_STATE_HOLDOVER
    assert time.monotonic() - asked < 0.8
    stream.cancel()


def test_watch_speaks_at_least_once_a_second_without_a_change(served: Served) -> None:
    stream = watch(served.read)
    ages = [next(stream).reading.age_ns for _ in range(3)]
    assert all(0 < later - earlier < 1.3 * NS_PER_S for earlier, later in pairwise(ages))
    stream.cancel()


def test_stopping_ends_streams_with_unavailable(served: Served) -> None:
    stream = watch(served.read)
    next(stream)
    served.api.stop()
    code, details = refusal(lambda: list(stream))
    assert code == grpc.StatusCode.UNAVAILABLE
    assert "stopping" in details


def test_stop_is_quick_with_open_streams_of_every_kind(served: Served) -> None:
    streams = [watch(served.read), stubs.HealthStub(served.read).Watch(stubs.HealthCheckRequest(), timeout=30)]
    for stream in streams:
        next(stream)
    quiet = threading.Event()
    streams.append(reflect(served.read, stubs.REFLECTION_SERVICES[0], until=quiet))
    next(streams[-1])
    began = time.monotonic()
    served.api.stop(grace_s=0.3)
    assert time.monotonic() - began < 1.5
    assert not served.config.socket.exists()
    quiet.set()


@pytest.mark.parametrize(
    ("bound_ns", "step", "save"),
    [
        (2_500_000, gate_pb2.STEP_VERDICT_PROCEED, gate_pb2.SAVE_VERDICT_SAVE),
        (2_600_000, gate_pb2.STEP_VERDICT_WARN, gate_pb2.SAVE_VERDICT_SAVE),
        (26_000_000, gate_pb2.STEP_VERDICT_HOLD, gate_pb2.SAVE_VERDICT_SAVE),
        (None, gate_pb2.STEP_VERDICT_HOLD, gate_pb2.SAVE_VERDICT_SAVE_UNTIMED),
    ],
)
def test_check_compares_the_bound_with_half_of_each_limit(
    served: Served, bound_ns: int | None, step: int, save: int
) -> None:
    served.publisher.publish(fresh(sequence=2, relative_bound_ns=bound_ns, growth_ppb=0))
    answer = check(served.read, job="j", rank=1, step=4)
    assert (answer.step_verdict, answer.save_verdict) == (step, save)
    assert answer.reading.sequence == 2


def test_check_of_an_expired_reading_cannot_tell(served: Served) -> None:
    served.publisher.publish(fresh(sequence=2, void_after_boot_ns=host.boot_ns() - 1))
    answer = check(served.read)
    assert answer.step_verdict == gate_pb2.STEP_VERDICT_UNKNOWN
    assert answer.reasons[0].code == clock_pb2.REASON_CODE_READING_EXPIRED


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"limits": None}, "limits: missing"),
        ({"limits": gate_pb2.Limits(hold_ns=5)}, "limits.warn_ns = 0: wanted a positive number"),
        ({"limits": gate_pb2.Limits(warn_ns=5, hold_ns=-1)}, "limits.hold_ns = -1: wanted a positive number"),
        ({"limits": gate_pb2.Limits(warn_ns=6, hold_ns=5)}, "limits.warn_ns = 6: wanted at most hold_ns = 5"),
    ],
)
def test_check_refuses_limits_that_mean_nothing(served: Served, fields: dict[str, Any], problem: str) -> None:
    code, details = refusal(lambda: check(served.read, **fields))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert problem in details


def run_drill(channel: grpc.Channel, **fields: Any) -> admin_pb2.DrillResponse:
    return admin_pb2_grpc.AdminStub(channel).Drill(admin_pb2.DrillRequest(**fields), timeout=5)


def test_drill_puts_its_fault_on_the_board_until_its_end(served: Served) -> None:
    now = host.boot_ns()
    answer = run_drill(served.admin, add_offset=admin_pb2.AddOffset(offset_ns=-5_000_000), duration_ns=3 * NS_PER_S)
    active = served.board.active(host.boot_ns())
    assert active == drill.ActiveFault(drill.Offset(-5_000_000), answer.ends_boot_ns)
    assert now + 3 * NS_PER_S <= answer.ends_boot_ns <= host.boot_ns() + 3 * NS_PER_S
    assert "-5 ms" in answer.active
    assert "3 s" in answer.active


def test_drill_step_needs_no_duration_and_has_no_end(served: Served) -> None:
    answer = run_drill(served.admin, step_clock=admin_pb2.StepClock(jump_ns=NS_PER_S))
    assert not answer.HasField("ends_boot_ns")
    active = served.board.active(host.boot_ns())
    assert active is not None
    assert active.fault == drill.Step(NS_PER_S)


def test_drill_clear_ends_the_active_fault(served: Served) -> None:
    run_drill(served.admin, freeze_source=admin_pb2.FreezeSource(), duration_ns=NS_PER_S)
    answer = run_drill(served.admin, clear=admin_pb2.Clear())
    assert not answer.HasField("ends_boot_ns")
    assert served.board.active(host.boot_ns()) is None


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "fault: missing"),
        ({"freeze_source": admin_pb2.FreezeSource()}, "duration_ns = 0: wanted 1 to"),
        ({"freeze_source": admin_pb2.FreezeSource(), "duration_ns": 3601 * NS_PER_S}, "one hour"),
        ({"add_offset": admin_pb2.AddOffset(offset_ns=1 << 62), "duration_ns": 1}, "offset_ns = 4611686018427387904"),
        ({"step_clock": admin_pb2.StepClock(jump_ns=-(1 << 62))}, "jump_ns = -4611686018427387904"),
    ],
)
def test_drill_refuses_what_it_cannot_mean(served: Served, fields: dict[str, Any], problem: str) -> None:
    code, details = refusal(lambda: run_drill(served.admin, **fields))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert problem in details
    assert served.board.active(host.boot_ns()) is None


def test_drill_is_not_on_the_read_socket(served: Served) -> None:
    code, _ = refusal(lambda: run_drill(served.read, clear=admin_pb2.Clear()))
    assert code == grpc.StatusCode.UNIMPLEMENTED


def test_admin_socket_reads_as_well(served: Served) -> None:
    assert get_reading(served.admin).sequence == 1
    assert check(served.admin).step_verdict == gate_pb2.STEP_VERDICT_PROCEED


def health(channel: grpc.Channel, service: str) -> int:
    status: int = stubs.HealthStub(channel).Check(stubs.HealthCheckRequest(service=service), timeout=5).status
    return status


@pytest.mark.parametrize(
    ("changes", "is_good"),
    [
        ({}, True),
        ({"state": ClockState.HOLDOVER}, True),
        ({"state": ClockState.FREE_RUNNING}, False),
        ({"state": ClockState.DISRUPTED}, False),
        ({"state": ClockState.ACQUIRING}, False),
        ({"state": ClockState.UNKNOWN}, False),
        ({"relative_bound_ns": None}, False),
        ({"void_after_boot_ns": 1}, False),
    ],
)
def test_daemon_alive_and_clock_good_are_two_questions(served: Served, changes: dict[str, Any], is_good: bool) -> None:
    served.publisher.publish(fresh(sequence=2, **changes))
    assert health(served.read, "") == stubs.STATUS_SERVING
    wanted = stubs.STATUS_SERVING if is_good else stubs.STATUS_NOT_SERVING
    assert health(served.read, "clockgate.v1.Clock") == wanted


def test_health_of_other_services_depends_on_the_socket(served: Served) -> None:
    assert health(served.read, "clockgate.v1.Gate") == stubs.STATUS_SERVING
    assert health(served.admin, "clockgate.v1.Admin") == stubs.STATUS_SERVING
    code, details = refusal(lambda: health(served.read, "clockgate.v1.Admin"))
    assert code == grpc.StatusCode.NOT_FOUND
    assert "clockgate.v1.Gate" in details


def test_health_watch_tells_changes_of_the_clock(served: Served) -> None:
    request = stubs.HealthCheckRequest(service="clockgate.v1.Clock")
    stream = stubs.HealthStub(served.read).Watch(request, timeout=30)
    assert next(stream).status == stubs.STATUS_SERVING
    served.publisher.publish(fresh(sequence=2))
    served.publisher.publish(fresh(sequence=3, state=ClockState.DISRUPTED))
    assert next(stream).status == stubs.STATUS_NOT_SERVING
    stream.cancel()


def test_health_watch_sees_a_reading_expire_by_itself(served: Served) -> None:
    served.publisher.publish(fresh(sequence=2, void_after_boot_ns=host.boot_ns() + NS_PER_S))
    stream = stubs.HealthStub(served.read).Watch(stubs.HealthCheckRequest(service="clockgate.v1.Clock"), timeout=30)
    assert [next(stream).status for _ in range(2)] == [stubs.STATUS_SERVING, stubs.STATUS_NOT_SERVING]
    stream.cancel()


def test_health_watch_of_an_unknown_service_says_so_and_stays_open(served: Served) -> None:
    stream = stubs.HealthStub(served.read).Watch(stubs.HealthCheckRequest(service="x.Y"), timeout=30)
    assert next(stream).status == stubs.STATUS_SERVICE_UNKNOWN
    time.sleep(0.3)
    assert stream.is_active()
    stream.cancel()


def reflect(
    channel: grpc.Channel, service: str, asked: dict[str, str] | None = None, until: threading.Event | None = None
) -> Any:
    def requests() -> Iterator[Any]:
        yield stubs.reflection_request(service)(host="h", **(asked or {"list_services": ""}))
        if until is not None:
            until.wait(30)

    return stubs.ReflectionStub(channel, service).ServerReflectionInfo(requests(), timeout=30)


@pytest.mark.parametrize("service", stubs.REFLECTION_SERVICES)
def test_reflection_lists_the_services_of_its_own_socket(served: Served, service: str) -> None:
    def listed(channel: grpc.Channel) -> set[str]:
        (answer,) = reflect(channel, service)
        assert answer.valid_host == "h"
        return {one.name for one in answer.list_services_response.service}

    read = {"clockgate.v1.Clock", "clockgate.v1.Gate", "grpc.health.v1.Health", *stubs.REFLECTION_SERVICES}
    assert listed(served.read) == read
    assert listed(served.admin) == read | {"clockgate.v1.Admin"}


@pytest.mark.parametrize(
    ("asked", "files"),
    [
        ({"file_by_filename": "clockgate/v1/clock.proto"}, 1),
        ({"file_containing_symbol": "clockgate.v1.Gate.Check"}, 2),
        ({"file_containing_symbol": "clockgate.v1.CheckRequest.limits"}, 2),
        ({"file_containing_symbol": "clockgate.v1.STEP_VERDICT_HOLD"}, 2),
        ({"file_containing_symbol": "grpc.health.v1.HealthCheckResponse.SERVING"}, 1),
        ({"file_containing_symbol": "clockgate.v1.DrillRequest.fault"}, 3),
    ],
)
def test_reflection_finds_files_with_their_imports(served: Served, asked: dict[str, str], files: int) -> None:
    (answer,) = reflect(served.read, stubs.REFLECTION_SERVICES[0], asked)
    assert len(answer.file_descriptor_response.file_descriptor_proto) == files


@pytest.mark.parametrize(
    "asked",
    [
        {"file_by_filename": "no.proto"},
        {"file_containing_symbol": "clockgate.v1.Nothing"},
        {"all_extension_numbers_of_type": "clockgate.v1.Nothing"},
    ],
)
def test_reflection_says_not_found_for_what_is_not_there(served: Served, asked: dict[str, str]) -> None:
    (answer,) = reflect(served.read, stubs.REFLECTION_SERVICES[0], asked)
    assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


def test_reflection_answers_extensions_with_none(served: Served) -> None:
    name = "clockgate.v1.Reading"
    (answer,) = reflect(served.read, stubs.REFLECTION_SERVICES[0], {"all_extension_numbers_of_type": name})
    assert answer.all_extension_numbers_response.base_type_name == name
    assert not answer.all_extension_numbers_response.extension_number


def test_streams_have_a_ceiling_and_unary_calls_do_not_feel_it(served: Served) -> None:
    streams = [watch(served.read) for _ in range(MAX_STREAMS)]
    for stream in streams:
        next(stream)
    code, details = refusal(lambda: next(watch(served.read)))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "max_streams" in details
    assert refusal(lambda: list(reflect(served.read, stubs.REFLECTION_SERVICES[0])))[0] == code
    assert get_reading(served.read).sequence == 1
    assert check(served.read).step_verdict == gate_pb2.STEP_VERDICT_PROCEED
    assert next(watch(served.admin)).reading.sequence == 1, "the admin socket has a ceiling of its own"
    for stream in streams:
        stream.cancel()


def test_cancelled_streams_make_room_again(served: Served) -> None:
    for _ in range(3 * MAX_STREAMS):
        due = time.monotonic() + 10
        while True:
            stream = watch(served.read)
            try:
                assert next(stream).reading.sequence == 1
                break
            except grpc.RpcError:
                assert time.monotonic() < due
                time.sleep(0.1)
        stream.cancel()


def test_calls_that_send_no_message_do_not_starve_the_others(served: Served) -> None:
    never = threading.Event()

    def silence() -> Iterator[bytes]:
        never.wait(30)
        yield from ()

    call = served.read.stream_unary("/clockgate.v1.Clock/GetReading", bytes, bytes)
    opened: list[Any] = [call.future(silence(), timeout=30) for _ in range(60)]
    time.sleep(0.2)
    asked = time.monotonic()
    with grpc.insecure_channel(
        f"unix:{served.config.socket}", options=[("grpc.use_local_subchannel_pool", 1)]
    ) as other:
        assert get_reading(other).sequence == 1
    assert time.monotonic() - asked < 4
    never.set()
    for one in opened:
        assert one.exception(timeout=20).code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.INVALID_ARGUMENT)


def test_sockets_of_a_failed_start_are_free_again(tmp_path: Path) -> None:
    (tmp_path / "admin").mkdir(mode=0o700)
    (tmp_path / "admin/a.sock").mkdir()
    config = ApiConfig(tmp_path / "c.sock", tmp_path / "admin/a.sock", MAX_STREAMS)
    with pytest.raises(Exception, match="a folder is in the way"):
        Api(config, Publisher(fresh(sequence=1)), drill.DrillBoard())
    (tmp_path / "admin/a.sock").rmdir()
    Api(config, Publisher(fresh(sequence=1)), drill.DrillBoard()).stop()
