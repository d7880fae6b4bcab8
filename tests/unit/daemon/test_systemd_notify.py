import logging
import os
import re
import socket
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from clockgated import systemd
from clockgated.errors import ConfigError
from support.daemon import environment


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """systemd's end of NOTIFY_SOCKET, and a module `systemd.daemon` that speaks to it as the real one does."""
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(address)
        receiver.settimeout(5)

        def notify(status: str) -> bool:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendto(status.encode(), address)
            return True

        package, daemon = types.ModuleType("systemd"), types.ModuleType("systemd.daemon")
        daemon.notify = notify  # type: ignore[attr-defined]
        package.daemon = daemon  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "systemd", package)
        monkeypatch.setitem(sys.modules, "systemd.daemon", daemon)
        yield receiver


def heard(manager: socket.socket) -> list[str]:
    return manager.recv(4096).decode().splitlines()


def test_without_notify_socket_nothing_is_imported_and_nothing_said() -> None:
    code = (
        "import sys; from clockgated import systemd; n = systemd.notifier({})\n"
        "n.ready(); n.reloading(); n.cycle_finished('x'); n.stopping()\n"
        "assert not any(m.split('.')[0] == 'systemd' for m in sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], env=environment(), check=True, timeout=30)


def test_life_is_told_in_the_order_of_sd_notify(manager: socket.socket) -> None:
    notifier = systemd.notifier({"NOTIFY_SOCKET": "set"})
    notifier.ready()
    notifier.cycle_finished("SYNCHRONIZED")
    notifier.reloading()
    notifier.stopping()
    assert heard(manager) == ["READY=1"]
    assert heard(manager) == ["STATUS=SYNCHRONIZED"]
    reloading, stamp = heard(manager)
    assert reloading == "RELOADING=1"
    assert re.fullmatch(r"MONOTONIC_USEC=\d+", stamp)
    assert heard(manager) == ["STOPPING=1"]


@pytest.mark.parametrize(
    ("variables", "is_fed"),
    [
        ({"WATCHDOG_USEC": "3000000"}, True),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, True),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, False),
        ({}, False),
    ],
)
def test_watchdog_is_fed_by_cycles_when_it_is_ours(
    manager: socket.socket, variables: dict[str, str], is_fed: bool
) -> None:
    notifier = systemd.notifier({"NOTIFY_SOCKET": "set", **variables})
    notifier.ready()
    assert "WATCHDOG=1" not in heard(manager), "a start is not a finished cycle"
    notifier.cycle_finished("x")
    assert ("WATCHDOG=1" in heard(manager)) is is_fed


def test_missing_module_under_notify_socket_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "systemd", None)
    with pytest.raises(ConfigError, match="install python3-systemd"):
        systemd.notifier({"NOTIFY_SOCKET": "set"})


def logged(level: str, **variables: str) -> str:
    code = (
        "import logging, os, sys; from clockgated import systemd\n"
        "seen = os.fstat(2); env = dict(os.environ)\n"
        "if env.get('AS_JOURNAL'): env['JOURNAL_STREAM'] = f'{seen.st_dev}:{seen.st_ino}'\n"
        "systemd.set_up_logging(sys.argv[1], env)\n"
        "logging.getLogger('a').info('one'); logging.getLogger('a').error('two')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, level],
        env=environment(**variables), capture_output=True, text=True, check=True, timeout=30,
    )  # fmt: skip
    return ran.stderr


def test_plain_log_is_level_and_message_on_stderr() -> None:
    assert logged("info") == "INFO one\nERROR two\n"
    assert logged("error") == "ERROR two\n"


def test_log_goes_to_the_journal_only_when_stderr_leads_there(tmp_path: Path) -> None:
    package = tmp_path / "systemd"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "journal.py").write_text(
        "import logging\n"
        "class JournalHandler(logging.Handler):\n"
        "    def __init__(self, **fields): super().__init__(); self.fields = fields\n"
        "    def emit(self, record):\n"
        "        import os; os.write(2, f'{self.fields} {self.format(record)}\\n'.encode())\n"
    )
    path = f"{environment()['PYTHONPATH']}:{tmp_path}"
    assert logged("error", PYTHONPATH=path, AS_JOURNAL="1") == "{'SYSLOG_IDENTIFIER': 'clockgated'} two\n"
    assert logged("error", PYTHONPATH=path, JOURNAL_STREAM="1:2") == "ERROR two\n"
    assert logged("error", AS_JOURNAL="1") == "ERROR two\n", "without the module the journal gets plain lines"


def test_every_log_level_is_known_to_logging() -> None:
    assert all(isinstance(logging.getLevelName(level.upper()), int) for level in systemd.LOG_LEVELS)
