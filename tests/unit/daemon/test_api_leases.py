"""Leases and epochs as clients see them: real gRPC over real unix sockets."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from clockgate.v1 import admin_pb2, admin_pb2_grpc, clock_pb2, clock_pb2_grpc, gate_pb2, gate_pb2_grpc
from clockgated import host
from clockgated.config import ApiConfig
from clockgated.ctl.main import main as ctl
from clockgated.drill import DrillBoard
from clockgated.lease_desk import LeaseDesk
from clockgated.leases import LeaseLimits
from clockgated.memory.epochs import Disruption
from clockgated.publish import Publisher
from clockgated.service.server import Api
from support.readings import reading

NS_PER_S = 1_000_000_000
MAX_STREAMS = 4
LIMITS = gate_pb2.Limits(warn_ns=5_000_000, hold_ns=50_000_000)
Code = grpc.StatusCode


def register_job(channel: grpc.Channel, requests: Iterator[gate_pb2.RegisterJobRequest]) -> Any:
    return gate_pb2_grpc.GateStub(channel).RegisterJob(requests, timeout=30)


@dataclass
class Served:
    api: Api
    config: ApiConfig
    desk: LeaseDesk
    epochs: list[Disruption]
    read: grpc.Channel
    admin: grpc.Channel

    def register(self, job: str = "train", rank: int = 0) -> Any:
        """A stream that sends one request and closes its own side."""
        return register_job(self.read, iter([gate_pb2.RegisterJobRequest(job=job, rank=rank)]))

    def check(self, job: str = "train", rank: int = 0) -> None:
        request = gate_pb2.CheckRequest(limits=LIMITS, job=job, rank=rank)
        gate_pb2_grpc.GateStub(self.read).Check(request, timeout=5)

    def leases(self) -> list[gate_pb2.Lease]:
        stub = admin_pb2_grpc.AdminStub(self.admin)
        return list(stub.ListLeases(admin_pb2.ListLeasesRequest(), timeout=5).leases)

    def break_lease(self, lease_id: str) -> admin_pb2.BreakLeaseResponse:
        stub = admin_pb2_grpc.AdminStub(self.admin)
        return stub.BreakLease(admin_pb2.BreakLeaseRequest(lease_id=lease_id), timeout=5)

    def list_epochs(self, **fields: int) -> list[clock_pb2.Epoch]:
        stub = clock_pb2_grpc.ClockStub(self.read)
        return list(stub.ListEpochs(clock_pb2.ListEpochsRequest(**fields), timeout=5).epochs)


def served_with(folder: Path, desk: LeaseDesk) -> Iterator[Served]:
    config = ApiConfig(folder / "c.sock", folder / "admin/a.sock", MAX_STREAMS)
    now = host.boot_ns()
    fresh = reading(as_of_boot_ns=now, void_after_boot_ns=now + 600 * NS_PER_S)
    epochs: list[Disruption] = []
    api = Api(config, Publisher(fresh), DrillBoard(), desk, lambda: tuple(epochs))
    with (
        grpc.insecure_channel(f"unix:{config.socket}") as read,
        grpc.insecure_channel(f"unix:{config.admin_socket}") as admin,
    ):
        yield Served(api, config, desk, epochs, read, admin)
    api.stop()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    yield from served_with(tmp_path, LeaseDesk())


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Served]:
    """Few leases, which end soon."""
    limits = LeaseLimits(max_leases=2, max_per_job=1, idle_ns=2 * NS_PER_S, refuse_broken_ns=2 * NS_PER_S)
    yield from served_with(tmp_path, LeaseDesk(limits, is_enforced=True))


def refusal(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    return error.code(), error.details()


def wait_until(is_so: Callable[[], bool], timeout_s: float = 10) -> None:
    due = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < due
        time.sleep(0.02)


def test_an_open_stream_is_a_lease_that_forbids_a_step(served: Served) -> None:
    assert served.desk.may_step_clock()
    before = host.boot_ns()
    stream = served.register(rank=3)
    answer = next(stream)
    assert (answer.lease.job, answer.lease.rank, answer.is_enforced) == ("train", 3, False)
    assert before <= answer.lease.opened_boot_ns == answer.lease.checked_boot_ns <= host.boot_ns()
    assert answer.lease.ends_boot_ns == answer.lease.checked_boot_ns + 600 * NS_PER_S
    assert served.leases() == [answer.lease]
    assert not served.desk.may_step_clock()
    time.sleep(0.3)
    assert stream.is_active(), "the client's side is closed, the lease is not"
    stream.cancel()
    wait_until(served.desk.may_step_clock)


def test_a_client_that_vanishes_gives_its_lease_back(served: Served) -> None:
    channel = grpc.insecure_channel(f"unix:{served.config.socket}", options=[("grpc.use_local_subchannel_pool", 1)])
    stream = register_job(channel, iter([gate_pb2.RegisterJobRequest(job="gone")]))
    next(stream)
    channel.close()
    wait_until(served.desk.may_step_clock)


def test_every_check_of_the_same_job_and_rank_renews_the_lease(strict: Served) -> None:
    stream = strict.register()
    opened = next(stream).lease
    due = time.monotonic() + 3
    while time.monotonic() < due:
        strict.check()
        strict.check(rank=1)
        strict.check(job="")
        time.sleep(0.2)
    (lease,) = strict.leases()
    assert lease.checked_boot_ns > opened.checked_boot_ns
    assert stream.is_active()
    stream.cancel()


def test_a_lease_without_a_check_expires_and_its_stream_says_so(strict: Served) -> None:
    stream = strict.register()
    assert next(stream).is_enforced
    code, details = refusal(lambda: next(stream))
    assert code is Code.ABORTED
    assert "lease 1 of job train, rank 0, is over: no Check came for too long" in details
    assert strict.leases() == []


def test_leases_are_capped_and_the_next_one_is_told_why(strict: Served) -> None:
    streams = [strict.register("a"), strict.register("b")]
    for stream in streams:
        next(stream)
    code, details = refusal(lambda: next(strict.register("c")))
    assert code is Code.RESOURCE_EXHAUSTED
    assert "2 leases are open, the limit is 2" in details
    streams[0].cancel()
    wait_until(lambda: len(strict.leases()) == 1)
    assert next(strict.register("c")).lease.job == "c"


def test_leases_count_against_the_ceiling_of_streams_and_unary_calls_do_not_feel_it(served: Served) -> None:
    streams = [served.register(rank=rank) for rank in range(MAX_STREAMS)]
    for stream in streams:
        next(stream)
    code, details = refusal(lambda: next(served.register("other")))
    assert code is Code.RESOURCE_EXHAUSTED
    assert "max_streams" in details
    served.check()
    assert len(served.leases()) == MAX_STREAMS
    for stream in streams:
        stream.cancel()


@pytest.mark.parametrize(
    ("job", "rank", "problem"),
    [
        ("", 0, "job name of 0 characters"),
        ("a\nb", 0, "printable"),
        ("x" * 201, 0, "job name of 201 characters"),
        ("train", -1, "rank = -1: wanted 0 or more"),
    ],
)
def test_a_lease_for_nobody_is_refused(served: Served, job: str, rank: int, problem: str) -> None:
    code, details = refusal(lambda: next(served.register(job, rank)))
    assert code is Code.INVALID_ARGUMENT
    assert problem in details


def test_a_stream_without_a_request_is_refused(served: Served) -> None:
    code, details = refusal(lambda: next(register_job(served.read, iter([]))))
    assert code is Code.INVALID_ARGUMENT
    assert "no request message" in details


def test_a_stream_that_sends_nothing_holds_no_lease_and_does_not_delay_the_stop(served: Served) -> None:
    never = threading.Event()

    def nothing() -> Iterator[gate_pb2.RegisterJobRequest]:
        never.wait(30)
        yield from ()

    stream = register_job(served.read, nothing())
    time.sleep(0.2)
    assert served.desk.may_step_clock()
    began = time.monotonic()
    served.api.stop(grace_s=0.3)
    assert time.monotonic() - began < 1.5
    never.set()
    stream.cancel()


def test_a_broken_lease_ends_its_stream_and_keeps_the_job_away_for_a_while(strict: Served) -> None:
    stream = strict.register()
    lease = next(stream).lease
    answer = strict.break_lease(lease.lease_id)
    assert answer.lease.lease_id == lease.lease_id
    assert host.boot_ns() < answer.refused_until_boot_ns <= host.boot_ns() + 2 * NS_PER_S
    code, details = refusal(lambda: next(stream))
    assert code is Code.ABORTED
    assert "the operator broke it" in details
    assert strict.desk.may_step_clock()
    code, details = refusal(lambda: next(strict.register()))
    assert code is Code.PERMISSION_DENIED
    assert "ask again in" in details
    assert next(strict.register("other")).lease.job == "other"
    time.sleep(2.1)
    assert next(strict.register()).lease.lease_id != lease.lease_id


def test_breaking_what_is_not_open_is_not_found(served: Served) -> None:
    code, details = refusal(lambda: served.break_lease("7"))
    assert code is Code.NOT_FOUND
    assert 'no open lease "7"; see `clockgatectl leases`' in details


def test_the_admin_calls_are_not_on_the_read_socket(served: Served) -> None:
    stub = admin_pb2_grpc.AdminStub(served.read)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: stub.ListLeases(admin_pb2.ListLeasesRequest(), timeout=5),
        lambda: stub.BreakLease(admin_pb2.BreakLeaseRequest(lease_id="1"), timeout=5),
    )
    for call in calls:
        assert refusal(call)[0] is Code.UNIMPLEMENTED


def test_leases_of_both_sockets_are_in_one_book(served: Served) -> None:
    stream = register_job(served.admin, iter([gate_pb2.RegisterJobRequest(job="admin")]))
    next(stream)
    served.check("admin")
    assert [lease.job for lease in served.leases()] == ["admin"]
    stream.cancel()


def test_a_stop_ends_leases_with_unavailable_at_once(served: Served) -> None:
    stream = served.register()
    next(stream)
    began = time.monotonic()
    served.api.stop(grace_s=0.5)
    code, details = refusal(lambda: next(stream))
    assert time.monotonic() - began < 1.5
    assert code is Code.UNAVAILABLE
    assert "clockgated is stopping; connect again" in details


def disruption(epoch: int, **changes: Any) -> Disruption:
    values = {"boot_id": "b", "at_boot_ns": 5, "wall_ns": 6, "code": "CLOCK_STEPPED", "detail": "set", "jump_ns": -7}
    return Disruption(epoch=epoch, **{**values, **changes})


def test_epochs_are_listed_the_newest_last(served: Served) -> None:
    assert served.list_epochs() == []
    served.epochs += [disruption(1), disruption(2, jump_ns=None, code="OF_A_NEWER_RELEASE")]
    first, second = served.list_epochs()
    assert first == clock_pb2.Epoch(
        epoch=1, boot_id="b", began_boot_ns=5, began_wall_ns=6, cause="CLOCK_STEPPED", detail="set", jump_ns=-7
    )
    assert (second.epoch, second.cause, second.HasField("jump_ns")) == (2, "OF_A_NEWER_RELEASE", False)


@pytest.mark.parametrize(("limit", "count"), [(None, 100), (1, 1), (150, 150), (1000, 1000), (2**31 - 1, 1000)])
def test_the_list_of_epochs_is_bounded(served: Served, limit: int | None, count: int) -> None:
    served.epochs += [disruption(number) for number in range(1200)]
    listed = served.list_epochs(**({} if limit is None else {"limit": limit}))
    assert [one.epoch for one in listed] == list(range(1200 - count, 1200))


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_asks_for_nothing_is_refused(served: Served, limit: int) -> None:
    code, details = refusal(lambda: served.list_epochs(limit=limit))
    assert code is Code.INVALID_ARGUMENT
    assert f"limit = {limit}: wanted 1 to 1000" in details


def test_an_edited_journal_does_not_break_the_answer(served: Served) -> None:
    served.epochs.append(disruption(-5, detail="a\udcff", at_boot_ns=-1))
    (listed,) = served.list_epochs()
    assert (listed.epoch, listed.detail) == (0, "a?")


def test_clockgatectl_lists_and_breaks_leases(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    admin = ["--admin-address", str(served.config.admin_socket)]
    assert ctl(["leases", *admin]) == 0
    assert capsys.readouterr().out == "no lease is open: the clock may be stepped\n"
    stream = served.register(rank=2)
    next(stream)
    assert ctl(["leases", *admin]) == 0
    assert "lease 1 of job train, rank 2: open for 0 s, ends in" in capsys.readouterr().out
    assert ctl(["leases", "--json", *admin]) == 0
    assert '"job": "train"' in capsys.readouterr().out
    assert ctl(["lease", *admin, "break", "1"]) == 0
    assert "broken: lease 1 of job train, rank 2; its job gets no other lease for" in capsys.readouterr().out
    assert refusal(lambda: next(stream))[0] is Code.ABORTED
    assert ctl(["lease", *admin, "break", "1"]) == 1
    assert 'no open lease "1"' in capsys.readouterr().err


def test_clockgatectl_says_where_leases_are_served(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["leases"], ["lease", "break", "1"]):
        command = [words[0], "--admin-address", str(served.config.socket), *words[1:]]
        assert ctl(command) == 2
        assert "leases are served on the admin socket only" in capsys.readouterr().err


def test_clockgatectl_shows_epochs(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    read = ["--address", str(served.config.socket), "epochs"]
    assert ctl(read) == 0
    assert capsys.readouterr().out == "no epoch is recorded\n"
    served.epochs += [disruption(12, boot_id="4b2e0c1c-0000", wall_ns=1_800_000_000 * NS_PER_S, detail="a\x1b[2Jb")]
    served.epochs += [disruption(13, wall_ns=1 << 62)]
    assert ctl(read) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "      12  boot 4b2e0c1c  2027-01-15T08:00:00Z  CLOCK_STEPPED: a\\x1b[2Jb"
    assert second.startswith("      13  boot b  ")
    assert ctl([*read, "--json"]) == 0
    assert '"jump_ns": -7' in capsys.readouterr().out
