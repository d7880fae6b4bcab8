"""The committed code under the oldest supported runtime (Debian 12's grpcio and protobuf) and the current one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.daemon import clockgated, ctl, environment, toml
from support.oldest import FOLDER, OLDEST, oldest_python

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

RECORDED = '{"after_s": 0, "bound_ns": 200000, "identity": "ntp:192.0.2.1", "stratum": 2}\n'
IMPORT_ALL = """
import clockgate.rule
from clockgate.v1 import admin_pb2_grpc, clock_pb2_grpc, gate_pb2_grpc, node_pb2_grpc, tuning_pb2_grpc
from clockgate.wire import own_files, stubs
import clockgated.tuning.gather
import clockgated.metrics.exposition
import grpc, google.protobuf, importlib.metadata, pyroute2
prometheus = importlib.metadata.version("prometheus-client")
print(grpc.__version__, google.protobuf.__version__, pyroute2.__version__, prometheus)
"""


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
        planned = ctl("--address", str(daemon.socket), "tune", "plan", "--json", "--profile", "none", python=python)
        assert planned.returncode == 0, planned.stderr
        assert json.loads(planned.stdout)["changes"] == []
        drilled = ctl("drill", "--admin-address", str(daemon.admin_socket), "freeze", "--for", "1s", python=python)
        assert drilled.returncode == 0, drilled.stderr
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.log.read_text()
