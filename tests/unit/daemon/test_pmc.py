import os
import signal
import time
from pathlib import Path

import pytest
from clockgated.clock.model import Reason, ReasonCode
from clockgated.sources.pmc import Pmc, PmcSettings
from clockgated.sources.pmc_text import parse, ptp_report
from support.fake_pmc import ANSWERS, FakePmc, fake_pmc
from support.patience import eventually
from support.ptp_text import a_report, a_round

MS, SECOND = 1_000_000, 1_000_000_000
PATIENT = {"round_timeout_ns": 20 * SECOND}
SHORT = {"round_timeout_ns": 300 * MS}
FAST_RETRY = {**PATIENT, "retry_ns": 1, "max_retry_ns": 2}


def reason_of(answer: bytes | Reason) -> Reason:
    assert isinstance(answer, Reason), answer
    return answer


def text_of(answer: bytes | Reason) -> bytes:
    assert isinstance(answer, bytes), answer
    return answer


def test_a_round_of_answers_is_one_report(tmp_path: Path) -> None:
    with fake_pmc(tmp_path, **PATIENT) as (_, pmc):
        assert ptp_report(parse(text_of(pmc.ask()))) == a_report()


def test_one_process_serves_many_rounds(tmp_path: Path) -> None:
    with fake_pmc(tmp_path, **PATIENT) as (fake, pmc):
        for offset in range(5):
            fake.says(a_round(master_offset=str(offset)))
            assert ptp_report(parse(text_of(pmc.ask()))) == a_report(offset_ns=offset)
        assert fake.pids == [pmc.pid]


def test_the_command_line_reaches_one_ptp4l_and_no_clock_behind_it() -> None:
    settings = PmcSettings("/usr/sbin/pmc", Path("/run/ptp4l"), Path("/run/mine"), domain=24, transport_specific=1)
    expected = "/usr/sbin/pmc -u -b 0 -s /run/ptp4l -i /run/mine -d 24 -t 1"
    assert " ".join(settings.argv) == expected


def test_commands_are_sent_one_by_one(tmp_path: Path) -> None:
    # pmc leaves a second command that it read along with the first in its own buffer.
    one_per_read = (
        'while line=$(dd bs=4096 count=1 2>/dev/null) && [ -n "$line" ]; do set -- $line; [ $# = 2 ] || exit 9; '
        'cat "$HERE/$2"; done'
    )
    with fake_pmc(tmp_path, one_per_read, **PATIENT) as (_, pmc):
        assert ptp_report(parse(text_of(pmc.ask()))) == a_report()


def test_a_missing_socket_is_named_and_starts_nothing(tmp_path: Path) -> None:
    fake = FakePmc(tmp_path)
    pmc = Pmc(PmcSettings(str(fake.program), fake.server_socket, fake.client_socket))
    reason = reason_of(pmc.ask())
    assert reason.code is ReasonCode.SOURCE_UNREACHABLE
    assert f"{tmp_path}/ptp4l is not there" in reason.detail
    assert fake.pids == []


def test_a_missing_program_is_named_with_the_next_step(tmp_path: Path) -> None:
    with fake_pmc(tmp_path) as (fake, pmc):
        fake.program.unlink()
        reason = reason_of(pmc.ask())
    assert f"cannot start {tmp_path}/pmc: No such file or directory" in reason.detail
    assert "is linuxptp installed?" in reason.detail


def test_silence_ends_with_the_rounds_timeout_and_names_what_to_check(tmp_path: Path) -> None:
    with fake_pmc(tmp_path, **SHORT) as (fake, pmc):
        fake.says(None)
        started = time.monotonic()
        reason = reason_of(pmc.ask())
        assert 0.25 < time.monotonic() - started < 10
    assert reason.code is ReasonCode.SOURCE_UNREACHABLE
    assert "domainNumber 0" in reason.detail


def test_a_pmc_beside_a_silent_ptp4l_is_kept_a_while_and_answers_again(tmp_path: Path) -> None:
    with fake_pmc(tmp_path, round_timeout_ns=SECOND) as (fake, pmc):
        fake.says(None)
        reason_of(pmc.ask())
        pid = pmc.pid
        fake.says(a_round())
        assert eventually(lambda: isinstance(pmc.ask(), bytes))
        assert pmc.pid == pid


def test_a_late_answer_does_not_count_for_the_next_round(tmp_path: Path) -> None:
    with fake_pmc(tmp_path, **PATIENT) as (fake, pmc):
        text_of(pmc.ask())
        # What came after the last round was given up waits in the pipe.
        Path(f"/proc/{fake.pids[0]}/fd/1").write_bytes(a_round(master_offset="5000000"))
        assert ptp_report(parse(text_of(pmc.ask()))) == a_report()


def test_a_stopped_pmc_is_replaced(tmp_path: Path) -> None:
    with fake_pmc(tmp_path, **SHORT) as (fake, pmc):
        assert eventually(lambda: isinstance(pmc.ask(), bytes))
        stopped = pmc.pid
        assert stopped is not None
        os.kill(stopped, signal.SIGSTOP)
        assert eventually(lambda: isinstance(pmc.ask(), bytes), timeout_s=30)
        assert pmc.pid != stopped
        assert fake.is_gone(stopped)


def test_a_killed_pmc_is_replaced_after_a_while(tmp_path: Path) -> None:
    with fake_pmc(tmp_path, **FAST_RETRY) as (fake, pmc):
        text_of(pmc.ask())
        killed = pmc.pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        reason = reason_of(pmc.ask())
        assert f"pmc (pid {killed}) ended" in reason.detail
        assert fake.is_gone(killed)
        assert isinstance(pmc.ask(), bytes)


def test_restarts_are_farther_and_farther_apart(tmp_path: Path) -> None:
    now_mono_ns = [0]
    with fake_pmc(tmp_path, "echo 'uds: bind failed' >&2; exit 255") as (fake, _):
        settings = PmcSettings(str(fake.program), fake.server_socket, fake.client_socket, round_timeout_ns=10**12)
        pmc = Pmc(settings, mono_ns=lambda: now_mono_ns[0])
        started_at = []
        for second in range(100):
            now_mono_ns[0] = second * SECOND
            before = len(fake.pids)
            reason = reason_of(pmc.ask())
            if len(fake.pids) > before:
                started_at.append(second)
                assert "ended by itself, saying 'uds: bind failed'" in reason.detail
            else:
                assert "it is started again in" in reason.detail
        pmc.close()
    assert started_at == [0, 1, 3, 7, 15, 31, 61, 91]


def test_an_answered_round_forgets_the_failures_before(tmp_path: Path) -> None:
    with fake_pmc(tmp_path, **FAST_RETRY) as (fake, pmc):
        for _ in range(2):
            text_of(pmc.ask())
            os.kill(fake.pids[-1], signal.SIGKILL)
            assert "times in a row" not in reason_of(pmc.ask()).detail


def test_a_flood_is_ended_and_called_garbled(tmp_path: Path) -> None:
    with fake_pmc(tmp_path, "exec yes 'bad command: yes'", **PATIENT) as (fake, pmc):
        reason = reason_of(pmc.ask())
        assert reason.code is ReasonCode.SOURCE_GARBLED
        assert fake.is_gone(fake.pids[0])


def test_a_refusal_ends_the_wait_for_that_data_set(tmp_path: Path) -> None:
    with fake_pmc(tmp_path, **PATIENT) as (fake, pmc):
        refusal = b"sending: GET PORT_DATA_SET\n\t02aa00.fffe.000002-1 seq 3 RESPONSE MANAGEMENT_ERROR_STATUS \n"
        fake.says_of("PORT_DATA_SET", refusal)
        problem = ptp_report(parse(text_of(pmc.ask())))
    assert isinstance(problem, str)
    assert "refused" in problem


@pytest.mark.parametrize("script", [ANSWERS, "trap '' TERM HUP INT\nwhile :; do sleep 0.1; done"])
def test_close_kills_and_reaps_whatever_it_does(tmp_path: Path, script: str) -> None:
    with fake_pmc(tmp_path, script, **SHORT) as (fake, pmc):
        fake.client_socket.touch()
        pmc.ask()
        assert eventually(lambda: len(fake.pids) == 1)
        pmc.close()
        assert fake.is_gone(fake.pids[0])
        assert not fake.client_socket.exists()
        assert pmc.pid is None
        pmc.close()
