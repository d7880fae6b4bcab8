"""The gate's verbs with one rank: what they return, report and refuse."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from clockgate.v1 import clock_pb2, gate_pb2
from clockgate_trainer.errors import PeerLostError
from clockgate_trainer.gate.ballot import SoloVote
from clockgate_trainer.gate.clocks import boot_ns
from clockgate_trainer.gate.gate import ClockGate, GateSettings, reason_names
from clockgate_trainer.gate.model import ABSENT, Flags, Kind, Limits, SaveVerdict, StepVerdict
from clockgate_trainer.gate.policy import OnUnknown
from clockgate_trainer.gate.sidecar import NullSidecar, Sidecar
from support.fake_daemon import FakeDaemon, make_reading
from support.patience import eventually

LIMITS = Limits(warn_ns=5_000_000, hold_ns=50_000_000)
BAD_BOUND_NS = 40_000_000


class Bench:
    """A gate of one rank, its daemon, and the events that it reported."""

    def __init__(self, folder: Path) -> None:
        self.events: list[tuple[str, Mapping[str, object]]] = []
        self.bound_ns = 100_000
        self.daemon = FakeDaemon(folder / "clock.sock", lambda: make_reading(bound_ns=self.bound_ns)).start()
        self.sidecar = Sidecar(self.daemon.address, LIMITS, job="", rank=0)

    def gate(self, *, hold_timeout_s: float = 20.0, on_unknown: OnUnknown = OnUnknown.HOLD) -> ClockGate:
        settings = GateSettings(LIMITS, on_unknown, hold_timeout_s=hold_timeout_s, poll_interval_s=0.05)
        return ClockGate(SoloVote(), self.sidecar, settings, lambda name, fields: self.events.append((name, fields)))

    def set_bound(self, bound_ns: int) -> None:
        """Change the daemon's bound and wait until the sidecar has heard of it."""
        self.bound_ns = bound_ns
        until = time.monotonic() + 10
        heard_ns: int | None = None
        while heard_ns is None or abs(heard_ns - bound_ns) > 50_000:
            assert time.monotonic() < until, f"the sidecar still says {heard_ns}, wanted {bound_ns}"
            time.sleep(0.01)
            heard_ns = self.sidecar.verdict(boot_ns(), OnUnknown.HOLD).relative_bound_ns


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=30, check=False
    )


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.sidecar.close()
    made.daemon.stop()


def test_a_step_reports_its_row_and_its_decision(bench: Bench) -> None:
    gate = bench.gate()
    assert gate.launch_check().step_verdict is StepVerdict.PROCEED
    gate.begin(1, batch=1 << 32 | 16, cursor_digest=99, last_step_ns=5)
    decision = gate.settle()
    (row,) = decision.rows
    assert (row.batch, row.cursor_digest, row.step_duration_ns, row.content_digest) == (1 << 32 | 16, 99, 5, ABSENT)
    assert decision.cluster_bound_ns is not None
    assert 100_000 <= decision.cluster_bound_ns < 200_000
    name, fields = bench.events[-1]
    assert name == "gate"
    assert (fields["step"], fields["kind"], fields["step_verdict"]) == (1, "STEP", "PROCEED")
    assert (fields["save_verdict"], fields["reasons"], fields["blamed_ranks"]) == ("SAVE", [], [])
    assert (fields["polls"], fields["held_ns"]) == (0, 0)


def test_the_daemon_is_asked_about_the_step_to_come(bench: Bench) -> None:
    gate = bench.gate()
    gate.launch_check()
    gate.begin(8, batch=1, cursor_digest=1, last_step_ns=1)
    until = time.monotonic() + 10
    while 9 not in {request.step for request in bench.daemon.requests}:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_loop_that_asks_ahead_is_not_asked_for_again(bench: Bench) -> None:
    gate = bench.gate()
    gate.launch_check()
    gate.ask_ahead(5)
    assert eventually(lambda: 5 in {request.step for request in bench.daemon.requests})
    gate.begin(5)
    gate.settle()
    gate.ask_ahead(6)
    assert eventually(lambda: 6 in {request.step for request in bench.daemon.requests})
    asked = [request.step for request in bench.daemon.requests]
    assert (asked.count(5), asked.count(6)) == (1, 1)


def test_a_hold_is_waited_out_and_told(bench: Bench) -> None:
    gate = bench.gate()
    gate.launch_check()
    bench.set_bound(BAD_BOUND_NS)
    asked = len(bench.daemon.requests)
    bench.daemon.reading = lambda: make_reading(
        bound_ns=BAD_BOUND_NS if len(bench.daemon.requests) < asked + 4 else 100_000
    )
    gate.begin(1, batch=3, cursor_digest=4, last_step_ns=5)
    decision = gate.settle()
    assert (decision.step_verdict, decision.kind) == (StepVerdict.PROCEED, Kind.STEP)
    assert (decision.rows[0].kind, decision.rows[0].batch, decision.rows[0].cursor_digest) == (Kind.HOLD_POLL, 3, 4)
    names = [name for name, _ in bench.events]
    assert names.count("hold") == 1
    assert names[-1] == "gate"
    polls, held_ns = bench.events[-1][1]["polls"], bench.events[-1][1]["held_ns"]
    assert isinstance(polls, int)
    assert isinstance(held_ns, int)
    assert polls >= 3
    assert held_ns >= polls * 50_000_000


def test_a_spent_budget_stops(bench: Bench) -> None:
    bench.set_bound(BAD_BOUND_NS)
    decision = bench.gate(hold_timeout_s=0.3).launch_check()
    assert decision.step_verdict is StepVerdict.STOP
    assert "HOLD_BUDGET_SPENT" in reason_names(decision.reasons)


def test_a_launch_without_a_daemon_follows_the_choice(tmp_path: Path) -> None:
    sidecar = Sidecar(f"unix:{tmp_path}/none.sock", LIMITS, job="", rank=0)
    try:
        gate = ClockGate(SoloVote(), sidecar, GateSettings(LIMITS, OnUnknown.STOP), lambda name, fields: None)
        decision = gate.launch_check()
    finally:
        sidecar.close()
    assert decision.step_verdict is StepVerdict.STOP
    assert reason_names(decision.reasons) == ["DAEMON_NEVER_REACHED"]


def test_with_the_check_off_nothing_waits() -> None:
    settings = GateSettings(LIMITS, OnUnknown.STOP)
    gate = ClockGate(SoloVote(), NullSidecar(), settings, lambda name, fields: None)
    assert gate.launch_check().step_verdict is StepVerdict.PROCEED
    decision = gate.agree(Kind.SAVE, 1, content_digest=12)
    assert (decision.save_verdict, decision.rows[0].content_digest) == (SaveVerdict.SAVE_UNTIMED, 12)


def test_a_user_signal_becomes_a_flag_of_one_step_and_term_of_all_that_follow(bench: Bench) -> None:
    gate = bench.gate()
    gate.install_signals()
    gate.launch_check()
    os.kill(os.getpid(), signal.SIGUSR1)
    assert not gate.agree(Kind.SAVE, 0).flags  # only a step's row carries it: the loop looks there
    flags = []
    for step in (1, 2):
        gate.begin(step, batch=1, cursor_digest=1, last_step_ns=1)
        flags.append(gate.settle().flags)
    assert flags == [Flags.SAVE_AND_GO_ON, Flags.NONE]
    os.kill(os.getpid(), signal.SIGTERM)
    for step in (3, 4):
        gate.begin(step, batch=1, cursor_digest=1, last_step_ns=1)
        decision = gate.settle()
        assert (decision.step_verdict, decision.flags) == (StepVerdict.STOP, Flags.SAVE_AND_EXIT)
    gate.agree(Kind.EXIT, 4)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


EARLY_SIGNAL = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
os.kill(os.getpid(), signal.SIGUSR2)
from clockgate_trainer.gate.ballot import SoloVote
from clockgate_trainer.gate.gate import ClockGate, GateSettings
from clockgate_trainer.gate.model import Limits
from clockgate_trainer.gate.policy import OnUnknown
from clockgate_trainer.gate.sidecar import NullSidecar
gate = ClockGate(SoloVote(), NullSidecar(), GateSettings(Limits(1, 2), OnUnknown.HOLD), print)
gate.install_signals()
print(gate.launch_check().step_verdict.name)
"""


def test_a_user_signal_that_came_before_the_rank_was_ready_is_not_lost() -> None:
    done = run_python(EARLY_SIGNAL)
    assert done.returncode == 0
    assert done.stdout.endswith("STOP\n")


def test_a_term_during_a_hold_ends_it(bench: Bench) -> None:
    gate = bench.gate()
    bench.set_bound(BAD_BOUND_NS)
    gate.request(Flags.OUT_OF_MEMORY)
    usual = bench.daemon.judge
    asked = len(bench.daemon.requests)

    def asks_to_leave(request: gate_pb2.CheckRequest, reading: clock_pb2.Reading) -> gate_pb2.CheckResponse:
        # Each poll of the hold asks once: some have passed by now.
        if request.step == 0 and len(bench.daemon.requests) >= asked + 5:
            gate.request(Flags.SAVE_AND_EXIT)
        return usual(request, reading)

    bench.daemon.judge = asks_to_leave
    decision = gate.launch_check()
    assert decision.step_verdict is StepVerdict.STOP
    assert decision.flags == Flags.SAVE_AND_EXIT | Flags.OUT_OF_MEMORY


def test_a_rank_of_a_job_whose_parent_is_gone_ends(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job")
    gate = bench.gate()
    gate.launch_check()
    monkeypatch.setattr(os, "getppid", lambda: 1)
    with pytest.raises(PeerLostError, match="is gone"):
        gate.begin(1, batch=1, cursor_digest=1, last_step_ns=1)


def test_a_rank_that_nobody_launched_may_outlive_its_shell(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    gate = bench.gate()
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert gate.launch_check().step_verdict is StepVerdict.PROCEED


def test_verbs_out_of_order_are_refused() -> None:
    gate = ClockGate(SoloVote(), NullSidecar(), GateSettings(LIMITS, OnUnknown.HOLD), lambda name, fields: None)
    with pytest.raises(RuntimeError, match="without begin"):
        gate.settle()
    gate.begin(1, batch=1, cursor_digest=1, last_step_ns=1)
    with pytest.raises(RuntimeError, match="settle it first"):
        gate.begin(2, batch=1, cursor_digest=1, last_step_ns=1)
    with pytest.raises(RuntimeError, match="settle it first"):
        gate.agree(Kind.SAVE, 1)


def test_reasons_have_names() -> None:
    assert reason_names(0) == []
    assert reason_names(1 << 36 | 1 << 61) == ["WARN_LIMIT", "REASON_61"]


@pytest.mark.parametrize("flush", ["lambda: print('flushed')", "lambda: 1 / 0"])
def test_leaving_flushes_and_ends_with_the_code_whatever_the_flush_does(flush: str) -> None:
    program = (
        "import atexit; atexit.register(print, 'not reached');"
        "from clockgate_trainer.gate.exit import leave; from clockgate_trainer.errors import ExitCode;"
        f"leave(ExitCode.PEER_LOST, {flush})"
    )
    done = run_python(program)
    assert done.returncode == 79
    assert "not reached" not in done.stdout
    assert ("flushed" in done.stdout) == ("print" in flush)
