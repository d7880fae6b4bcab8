"""Apply, Verify and Revert over real sockets, and how `clockgatectl tune` shows what became of them."""

import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from typing import Any

import grpc
import pytest
from clockgate.v1 import tuning_pb2, tuning_pb2_grpc
from clockgated.ctl import tune, tune_changes
from clockgated.ctl.main import main as ctl
from clockgated.service.tuning_changes import TuningAdminServicer, TuningReadServicer
from clockgated.service.tuning_results import ENUMERATIONS
from clockgated.tuning.desk import RefusalKind, Refused
from clockgated.tuning.journal import JournalError
from clockgated.tuning.model import Counter, Owner, OwnerKind, Verdict, VerdictCode
from clockgated.tuning.outcome import Outcome, OutcomeCode
from clockgated.tuning.verify import Checked
from support.tuning import sysctl

RMEM = sysctl("net.ipv4.tcp_rmem")
DRIFT = Verdict(
    VerdictCode.DRIFT, RMEM, "1", "2", "it is 2: changed by a writer that is not known",
    Owner(OwnerKind.OTHER, "last writer unknown"), (Counter("tcp.RetransSegs", 9),),
)  # fmt: skip


class FakeDesk:
    """Answers as it is told."""

    def __init__(self) -> None:
        self.outcomes: tuple[Outcome, ...] | Refused | JournalError = ()
        self.checked: tuple[Checked, ...] = ()
        self.asked: list[Any] = []
        self.may_end = threading.Event()
        self.may_end.set()
        self.begun = threading.Semaphore(0)

    def plan(self, profile: str | None, rtt_ms: float | None) -> Any:
        raise AssertionError("not asked here")

    def apply(self, plan_hash: str, *, ignore_leases: bool) -> tuple[Outcome, ...] | Refused:
        self.asked.append((plan_hash, ignore_leases))
        return self._answer()

    def revert(self, *, ignore_leases: bool) -> tuple[Outcome, ...] | Refused:
        self.asked.append(ignore_leases)
        return self._answer()

    def verify(self) -> tuple[Checked, ...]:
        self.begun.release()
        assert self.may_end.wait(20)
        return self.checked

    def _answer(self) -> tuple[Outcome, ...] | Refused:
        if isinstance(self.outcomes, JournalError):
            raise self.outcomes
        return self.outcomes


class Served:
    """Both sockets of a fake desk."""

    def __init__(self, folder: Path) -> None:
        self.desk = FakeDesk()
        self.paths = {name: folder / f"{name}.sock" for name in ("read", "admin")}
        self._servers = []
        for name, made in (("read", TuningReadServicer), ("admin", TuningAdminServicer)):
            server = grpc.server(ThreadPoolExecutor(8))
            tuning_pb2_grpc.add_TuningServicer_to_server(made(self.desk), server)  # type: ignore[arg-type]
            server.add_insecure_port(f"unix:{self.paths[name]}")
            server.start()
            self._servers.append(server)

    def tune(self, action: str, *words: str) -> int:
        admin = ("--admin-address", str(self.paths["admin"])) if action != "verify" else ()
        return ctl(["--address", str(self.paths["read"]), "tune", action, *admin, *words])

    def close(self) -> None:
        for server in self._servers:
            server.stop(0).wait()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.close()


def outcome(code: OutcomeCode, detail: str = "") -> Outcome:
    return Outcome(code, RMEM, "0", "1", None if code is OutcomeCode.GONE else "1", detail)


@pytest.mark.parametrize(
    ("codes", "apply_exit", "revert_exit"),
    [
        ([OutcomeCode.APPLIED, OutcomeCode.APPLIED], 0, 0),
        ([OutcomeCode.REVERTED, OutcomeCode.REVERTED], 6, 0),
        ([OutcomeCode.APPLIED, OutcomeCode.DEFERRED], 5, 5),
        ([OutcomeCode.REVERTED, OutcomeCode.LEFT], 6, 5),
        ([OutcomeCode.REVERTED, OutcomeCode.GONE], 6, 0),
        ([OutcomeCode.FAILED, OutcomeCode.LEFT], 6, 6),
        ([], 0, 0),
    ],
)
def test_exit_codes_tell_what_became_of_the_changes(
    served: Served, codes: Sequence[OutcomeCode], apply_exit: int, revert_exit: int
) -> None:
    served.desk.outcomes = tuple(map(outcome, codes))

    assert served.tune("apply", "abc", "--ignore-leases") == apply_exit
    assert served.tune("revert") == revert_exit
    assert served.desk.asked == [("abc", True), False]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Refused(RefusalKind.UNKNOWN_PLAN, "no plan"), 5),
        (Refused(RefusalKind.MOVED, "plan again"), 5),
        (Refused(RefusalKind.BUSY, "process 7 is applying"), 5),
        (JournalError("journal: line 3: damaged"), 6),
    ],
)
def test_a_refusal_is_told_with_its_exit_code(
    served: Served, answer: Any, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    served.desk.outcomes = answer

    assert served.tune("apply", "abc") == code
    assert served.tune("revert") == code
    assert capsys.readouterr().err.count("clockgatectl: ") == 2


def test_the_read_socket_says_where_changes_are_asked_for(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    served.paths["admin"] = served.paths["read"]

    assert served.tune("apply", "abc") == 2
    assert "--admin-address" in capsys.readouterr().err
    assert served.desk.asked == []


def test_what_became_of_changes_is_shown_to_people_and_scripts(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    served.desk.outcomes = (outcome(OutcomeCode.APPLIED), outcome(OutcomeCode.GONE, "interface \x1b[31m is gone"))

    served.tune("apply", "abc")
    assert capsys.readouterr().out.splitlines()[:2] == [
        "applied: net.ipv4.tcp_rmem is 1",
        "gone: net.ipv4.tcp_rmem is unknown",
    ]
    served.tune("apply", "abc", "--json")
    shown = json.loads(capsys.readouterr().out)
    assert shown["exit_code"] == 4
    assert [one["code"] for one in shown["outcomes"]] == ["OUTCOME_CODE_APPLIED", "OUTCOME_CODE_GONE"]


def test_drift_is_shown_with_writer_and_counters(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    served.desk.checked = (Checked(DRIFT, (Counter("tcp.RetransSegs", 5),)),)

    assert served.tune("verify") == 1
    shown = capsys.readouterr().out
    assert "drift: net.ipv4.tcp_rmem = 1" in shown
    assert "last writer unknown" in shown
    assert "tcp.RetransSegs 5 -> 9" in shown
    assert served.tune("verify", "--json") == 1
    assert json.loads(capsys.readouterr().out)["verdicts"][0]["actual"] == "2"


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [(VerdictCode.CLEAN, 0), (VerdictCode.UNSUPPORTED, 4), (VerdictCode.CONFLICT, 5), (VerdictCode.ERROR, 6)],
)
def test_exit_codes_tell_what_a_check_found(served: Served, code: VerdictCode, exit_code: int) -> None:
    served.desk.checked = (Checked(Verdict(code, RMEM, "1", None)),)

    assert served.tune("verify") == exit_code


def test_nothing_applied_is_clean(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert served.tune("verify") == 0
    assert "nothing is applied" in capsys.readouterr().out


def test_a_third_comparison_at_once_is_refused(served: Served) -> None:
    served.desk.may_end.clear()
    with grpc.insecure_channel(f"unix:{served.paths['read']}") as channel:
        verify = tuning_pb2_grpc.TuningStub(channel).Verify
        slow = [verify.future(tuning_pb2.VerifyRequest(), timeout=30) for _ in range(2)]
        assert all(served.desk.begun.acquire(timeout=20) for _ in slow)
        with pytest.raises(grpc.RpcError) as refused:
            verify(tuning_pb2.VerifyRequest(), timeout=20)
        served.desk.may_end.set()
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert [one.result(20).verdicts for one in slow] == [[], []]


def test_a_long_apply_tells_that_it_waits(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_changes, "_PROGRESS_S", 0.1)
    told: list[str] = []
    real = served.desk.apply

    def slow(plan_hash: str, *, ignore_leases: bool) -> tuple[Outcome, ...] | Refused:
        threading.Event().wait(0.5)
        return real(plan_hash, ignore_leases=ignore_leases)

    monkeypatch.setattr(served.desk, "apply", slow)
    with grpc.insecure_channel(f"unix:{served.paths['admin']}") as channel:
        assert tune_changes.apply(channel, "abc", ignore_leases=False, tell=told.append) == []
    assert told
    assert "reached" in told[0]


@pytest.mark.parametrize(("own", "wire", "prefix"), ENUMERATIONS)
def test_every_result_has_its_name_on_the_wire(own: type[Enum], wire: Any, prefix: str) -> None:
    assert {prefix + member.name for member in own} == set(wire.keys()) - {prefix + "UNSPECIFIED"}


def test_a_hash_or_profile_of_odd_bytes_is_asked_for_all_the_same(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    served.desk.outcomes = Refused(RefusalKind.UNKNOWN_PLAN, "no such plan")

    assert served.tune("apply", "a\udcff") == 5
    assert served.desk.asked == [("a?", False)]
    assert "no such plan" in capsys.readouterr().err
    assert tune.sendable("a\udcff") == "a?"
