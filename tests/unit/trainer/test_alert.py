"""Alerts of long waits and stops: when they go out, what they say, and what a dead receiver costs."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from clockgate_trainer import alert
from clockgate_trainer.alert import Alerter, Targets, demand_program, read_targets
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.events import EventLog, MetricLog
from clockgate_trainer.gate.ballot import SoloVote
from clockgate_trainer.gate.gate import ClockGate, GateSettings
from clockgate_trainer.gate.model import Flags, Limits, SaveVerdict, StepVerdict
from clockgate_trainer.gate.policy import OnUnknown
from clockgate_trainer.train.report import Reporter, Standing
from hypothesis import given
from hypothesis import strategies as st
from support.programs import program
from support.scripted_side import ScriptedSide

HELD = {"step": 7, "reasons": ["HOLD_LIMIT"], "blamed_ranks": [3], "detail": "bound ±30 ms"}


class Receiver:
    """A web server that keeps what is posted and answers with `status`, after `delay_s`."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.status = 200
        self.delay_s = 0.0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                time.sleep(receiver.delay_s)
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append(json.loads(body))
                self.send_response(receiver.status)
                self.send_header("Location", receiver.url)
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook/SECRET"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


Events = list[tuple[str, Mapping[str, object]]]


def make(targets: Targets, after_hold_s: float = 0.1) -> tuple[Alerter, Events]:
    events: Events = []
    alerter = Alerter(targets, after_hold_s=after_hold_s, job="j", on_event=lambda *event: events.append(event))
    return alerter, events


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_long_wait_and_its_end_are_told_with_who_and_why(receiver: Receiver) -> None:
    alerter, events = make(Targets(receiver.url))
    alerter.hold(HELD)
    alerter.hold(HELD | {"blamed_ranks": [3, 4]})
    wait_for(lambda: len(receiver.got) == 1)
    alerter.go_on()
    alerter.close()
    hold, over = receiver.got
    assert (hold["kind"], hold["job"], hold["step"]) == ("hold", "j", 7)
    assert (hold["reasons"], hold["ranks"], hold["detail"]) == (["HOLD_LIMIT"], [3, 4], "bound ±30 ms")
    assert hold["held_s"] >= 0.1
    assert over["kind"] == "hold_over"
    assert [fields["level"] for _, fields in events] == ["CRITICAL", "INFO"]
    assert "SECRET" not in str(events)


def test_a_short_wait_disturbs_nobody(receiver: Receiver) -> None:
    alerter, events = make(Targets(receiver.url), after_hold_s=5)
    alerter.hold(HELD)
    alerter.go_on()
    alerter.close()
    assert (receiver.got, events) == ([], [])


def test_a_stop_is_told_at_once_and_before_the_end(receiver: Receiver) -> None:
    alerter, _ = make(Targets(receiver.url), after_hold_s=60)
    receiver.delay_s = 0.3
    alerter.hold(HELD)
    alerter.stop(HELD | {"reasons": ["HOLD_BUDGET_SPENT"]})
    alerter.close()
    (stop,) = receiver.got
    assert (stop["kind"], stop["reasons"]) == ("stop", ["HOLD_BUDGET_SPENT"])


@pytest.mark.parametrize("status", [302, 404, 500])
def test_a_webhook_that_refuses_is_told_without_its_address_and_not_followed(receiver: Receiver, status: int) -> None:
    receiver.status = status
    alerter, events = make(Targets(receiver.url))
    alerter.stop(HELD)
    alerter.close()
    assert events[0][1]["undelivered"] == [f"webhook at 127.0.0.1: HTTP {status}"]
    assert len(receiver.got) == 1


def test_dead_and_slow_receivers_cost_the_rank_nothing_but_their_limit(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert, "_WEBHOOK_LIMIT_S", 0.2)
    monkeypatch.setattr(alert, "_COMMAND_LIMIT_S", 0.2)
    receiver.delay_s = 1
    hanging = program(tmp_path, "hanging", "sleep 60 & sleep 60")
    alerter, events = make(Targets(receiver.url, (str(hanging),)))
    started = time.monotonic()
    alerter.stop(HELD)
    assert time.monotonic() - started < 0.15
    alerter.close()
    assert events[0][1]["undelivered"] == ["webhook at 127.0.0.1: TimeoutError", f"{hanging}: not done after 0.2 s"]


def test_a_program_gets_the_alert_on_its_standard_input(tmp_path: Path) -> None:
    hook = program(tmp_path, "hook", f"cat > {tmp_path}/got; exit 3")
    alerter, events = make(read_targets(None, f"'{hook}' --flag", {}))
    alerter.stop(HELD)
    alerter.close()
    assert json.loads((tmp_path / "got").read_text())["ranks"] == [3]
    assert events[0][1]["undelivered"] == [f"{hook}: ended with 3"]


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/SECRET",
        "host/SECRET",
        "http://",
        "https://a b/SECRET",
        "http://h:99999/SECRET",
        "http://[SECRET",
        "http://h:0/SECRET",
        "http://a..b/SECRET",
    ],
)
def test_an_address_that_is_none_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigError, match="wanted http") as caught:
        read_targets(url, None, {})
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("host", ["chat.example", "10.0.0.1", "0.0.0.0", "localhost.example", "[::ffff:10.0.0.1]"])
def test_a_secret_does_not_travel_in_the_clear(host: str) -> None:
    with pytest.raises(ConfigError, match="wanted https://, or http:// to localhost") as caught:
        read_targets(f"http://{host}/SECRET", None, {})
    assert "SECRET" not in str(caught.value)
    assert read_targets(f"https://{host}/SECRET", None, {}).webhook is not None


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "127.1.2.3", "[::1]"])
def test_this_machine_may_be_told_in_the_clear(host: str) -> None:
    assert read_targets(f"http://{host}/SECRET", None, {}).webhook is not None


def test_address_with_a_password_is_refused_without_repeating_it() -> None:
    with pytest.raises(ConfigError, match="path or query") as caught:
        read_targets("https://user:SECRET@host/x", None, {})
    assert "SECRET" not in str(caught.value)


def test_server_that_answers_drop_by_drop_is_left_alone_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert, "_WEBHOOK_LIMIT_S", 0.3)
    monkeypatch.setattr(alert, "_WEBHOOK_GRACE_S", 0.1)
    done = threading.Event()

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not done.wait(0.05):
                connection.sendall(b"a")

    with socket.create_server(("127.0.0.1", 0)) as server:
        dripping = threading.Thread(target=drip, args=(server,))
        dripping.start()
        alerter, events = make(Targets(f"http://127.0.0.1:{server.getsockname()[1]}/SECRET"))
        alerter.stop(HELD)
        wait_for(lambda: bool(events))
        done.set()
        dripping.join()
        alerter.close()
    assert events[0][1]["undelivered"] == ["webhook at 127.0.0.1: not done after 0.3 s"]


@given(st.text(max_size=30))
def test_no_address_raises_anything_else(url: str) -> None:
    try:
        read_targets(url, None, {})
    except ConfigError:
        return


def test_the_address_may_be_in_the_environment_and_the_flag_wins() -> None:
    environ = {"CLOCKGATE_ALERT_WEBHOOK": "https://a.example/x"}
    assert read_targets(None, None, environ) == Targets("https://a.example/x")
    assert read_targets("https://b.example/x", None, environ) == Targets("https://b.example/x")
    assert read_targets(None, None, {}) == Targets()
    with pytest.raises(ConfigError, match="quote it"):
        read_targets(None, "it's", {})
    with pytest.raises(ConfigError, match="no program nosuchprogram"):
        demand_program(Targets(None, ("nosuchprogram",)))


def test_a_run_alerts_on_a_long_hold_and_on_a_gate_stop_but_not_on_a_signal(
    tmp_path: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    reporter = Reporter(EventLog(tmp_path, 0), MetricLog(tmp_path), Standing())
    reporter.call_people(Targets(receiver.url), after_hold_s=0.05, job="j")
    side = ScriptedSide({4: (StepVerdict.STOP, SaveVerdict.SAVE)}, held={2: 40})
    settings = GateSettings(Limits(5_000_000, 50_000_000), OnUnknown.HOLD, poll_interval_s=0.01)
    gate = ClockGate(SoloVote(), side, settings, reporter.on_gate_event)
    gate.launch_check()
    for step in (1, 2, 3, 4):
        gate.begin(step)
        gate.settle()
    gate.request(Flags.SAVE_AND_EXIT)
    gate.begin(5)
    assert gate.settle().step_verdict is StepVerdict.STOP
    reporter.close()
    assert [posted["kind"] for posted in receiver.got] == ["hold", "hold_over", "stop"]
    logged = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    critical = [entry for entry in logged if entry.get("level") == "CRITICAL"]
    assert [entry["kind"] for entry in critical] == ["hold", "stop"]
    told = capsys.readouterr().err
    assert "CRITICAL: step 4: stop: " in told
    assert "SECRET" not in told
