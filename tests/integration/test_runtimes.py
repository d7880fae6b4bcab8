"""The committed code under the oldest supported runtime (Debian 12's grpcio and protobuf) and the current one."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from support.daemon import clockgated, ctl, environment, toml
from support.tools import ROOT, find_tool, missing

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

OLDEST = {"grpcio": "1.51.1", "protobuf": "4.21.12"}
FOLDER = ROOT / ".cache/venv-oldest"
RECORDED = '{"after_s": 0, "bound_ns": 200000, "identity": "ntp:192.0.2.1", "stratum": 2}\n'
IMPORT_ALL = """
import clockgate.rule
from clockgate.v1 import admin_pb2_grpc, clock_pb2_grpc, gate_pb2_grpc
from clockgate.wire import own_files, stubs
import grpc, google.protobuf
print(grpc.__version__, google.protobuf.__version__)
"""


@cache
def oldest_python() -> Path:
    """An interpreter with the oldest runtime, kept for the next run."""
    python = FOLDER / "bin/python"
    if not (FOLDER / "complete").exists():
        # Wheels of that grpcio exist for Python 3.11 and older.
        base = sys.executable if sys.version_info[:2] == (3, 11) else find_tool("python3.11")
        if base is None:
            missing("Python 3.11 is not on this machine, for which the oldest runtime has wheels")
        subprocess.run([base, "-m", "venv", "--clear", FOLDER], check=True, capture_output=True, timeout=120)
        pins = [f"{name}=={version}" for name, version in OLDEST.items()]
        installed = subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pins],
            capture_output=True, text=True, check=False, timeout=200,
        )  # fmt: skip
        if installed.returncode != 0:
            missing(f"the oldest runtime cannot be installed: {installed.stderr.strip()[-300:]}")
        (FOLDER / "complete").touch()
    return python


@pytest.fixture(params=["oldest", "current"])
def python(request: pytest.FixtureRequest) -> Path:
    return oldest_python() if request.param == "oldest" else Path(sys.executable)


def test_stubs_import_without_a_warning(python: Path) -> None:
    ran = subprocess.run(
        [python, "-W", "error", "-c", IMPORT_ALL],
        env=environment(), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    if python.is_relative_to(FOLDER):
        assert ran.stdout.split() == list(OLDEST.values())


def test_daemon_and_clients_of_both_runtimes_understand_each_other(python: Path, tmp_path: Path) -> None:
    (tmp_path / "recorded.jsonl").write_text(RECORDED)
    config = toml(
        tmp_path,
        clock='source = "recorded"\npoll_interval_s = 0.1\nsync_cycles = 1',
        extra=f'[recorded]\nfile = "{tmp_path / "recorded.jsonl"}"',
    )
    with clockgated(tmp_path, config, python=python) as daemon:
        for client in (python, Path(sys.executable)):
            asked = ctl("--address", str(daemon.socket), "status", "--json", python=client)
            assert asked.returncode == 0, asked.stderr
            assert json.loads(asked.stdout)["reference"]["identity"] == "ntp:192.0.2.1"
        drilled = ctl("drill", "--admin-address", str(daemon.admin_socket), "freeze", "--for", "1s", python=python)
        assert drilled.returncode == 0, drilled.stderr
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.log.read_text()
