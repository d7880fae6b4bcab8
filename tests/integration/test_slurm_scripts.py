"""Slurm's prolog, epilog, health check and batch script beside a real daemon; scontrol, srun and scancel are fakes."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from clockgate.v1 import gate_pb2, gate_pb2_grpc
from support.daemon import Clockgated, clockgated, toml
from support.fake_slurm import SCRIPTS, Slurm, put_program, signal_once_it_runs, slurm
from support.tools import require_tool

pytestmark = pytest.mark.integration

JOB = {
    "SLURM_JOB_ID": "42",
    "SLURM_JOB_NODELIST": "node[7-8]",
    "SLURM_NNODES": "2",
    "SLURM_GPUS_ON_NODE": "4",
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clockgated]:
    folder = tmp_path_factory.mktemp("node")
    recording = folder / "reading.jsonl"
    reading = {"after_s": 0, "bound_ns": 200_000, "identity": "ntp:192.0.2.1", "stratum": 2}
    recording.write_text(json.dumps(reading) + "\n")
    clock = 'source = "recorded"\nsync_cycles = 1\npoll_interval_s = 0.2\nreading_ttl_s = 60'
    config = toml(folder, clock=clock, extra=f'[recorded]\nfile = "{recording}"')
    with clockgated(folder, config) as running:
        yield running


@pytest.fixture
def site(daemon: Clockgated, tmp_path: Path) -> Slurm:
    return slurm(tmp_path / "slurm", daemon.socket, daemon.admin_socket)


def test_scripts_are_clean_for_shellcheck() -> None:
    done = subprocess.run(
        [require_tool("shellcheck"), "--external-sources", *sorted(SCRIPTS.iterdir())],
        cwd=SCRIPTS.parents[1],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 0, done.stdout


def test_a_good_clock_lets_jobs_start_and_asks_slurm_for_nothing(site: Slurm) -> None:
    assert site.run("prolog.sh").returncode == 0
    assert site.run("health_check.sh").returncode == 0
    assert site.calls() == []


def test_a_clock_out_of_limits_drains_the_node_and_a_good_one_gives_it_back(daemon: Clockgated, site: Slurm) -> None:
    assert daemon.ctl("drill", "offset", "200ms", "--for", "600s").returncode == 0
    refused = site.run("prolog.sh", CLOCKGATE_TRIES="2")
    assert refused.returncode == 1
    state, reason = site.state
    assert state == "IDLE+DRAIN"
    assert reason.startswith("clockgate: clock out of limits: FREE_RUNNING BOUND_OVER_LIMIT")
    assert "node7" in refused.stderr
    assert daemon.ctl("drill", "clear").returncode == 0
    assert site.run("health_check.sh", CLOCKGATE_TRIES="10").returncode == 0
    assert site.state == ("IDLE", "")
    calls = len(site.calls())
    assert site.run("health_check.sh").returncode == 0
    assert len(site.calls()) == calls


def test_a_node_that_somebody_else_drained_is_left_to_them(site: Slurm) -> None:
    put_program(site.folder, "clockgatectl", "#!/bin/sh\nexit 1\n")
    site.set_state("IDLE+DRAIN", "disk replaced [ann@2026-12-01T00:00:00]")
    assert site.run("health_check.sh").returncode == 0
    assert site.state == ("IDLE+DRAIN", "disk replaced [ann@2026-12-01T00:00:00]")
    assert not site.calls("scontrol update")


def test_a_reason_that_somebody_gave_meanwhile_is_not_resumed(site: Slurm) -> None:
    put_program(site.folder, "clockgatectl", "#!/bin/sh\nexit 0\n")
    (site.folder / "mark").mkdir()
    (site.folder / "mark/drained").touch()
    site.set_state("IDLE+DRAIN", "clock and disk, ask ann")
    assert site.run("health_check.sh").returncode == 0
    assert site.state[0] == "IDLE+DRAIN"
    assert not (site.folder / "mark/drained").exists()


def test_a_node_is_given_back_later_when_slurm_does_not_answer(site: Slurm) -> None:
    put_program(site.folder, "clockgatectl", "#!/bin/sh\nexit 0\n")
    answering = (site.folder / "bin/scontrol").read_text()
    put_program(site.folder, "scontrol", "#!/bin/sh\nexit 1\n")
    (site.folder / "mark").mkdir()
    (site.folder / "mark/drained").touch()
    site.set_state("IDLE+DRAIN", "clockgate: clock out of limits [root@2026-12-01T00:00:00]")
    assert site.run("health_check.sh").returncode == 1
    put_program(site.folder, "scontrol", answering)
    assert site.run("health_check.sh").returncode == 0
    assert site.state == ("IDLE", "")
    assert not (site.folder / "mark/drained").exists()


def test_a_dead_daemon_drains_the_node(site: Slurm, tmp_path: Path) -> None:
    assert site.run("health_check.sh", CLOCKGATE_ADDRESS=str(tmp_path / "none.sock")).returncode == 0
    assert site.state[0] == "IDLE+DRAIN"
    assert site.state[1].startswith("clockgate: the clock daemon does not answer")


def test_a_daemon_that_hangs_holds_no_script_up(daemon: Clockgated, site: Slurm) -> None:
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        assert site.run("prolog.sh", CLOCKGATE_ASK_S="1").returncode == 1
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    assert site.state[1].startswith("clockgate: the clock daemon gave no answer within 1 s")


@pytest.mark.parametrize(("code", "state"), [(0, "IDLE"), (1, "IDLE+DRAIN"), (3, "IDLE")])
def test_the_health_of_the_node_counts_where_it_is_asked_for(site: Slurm, code: int, state: str) -> None:
    put_program(
        site.folder,
        "clockgatectl",
        f'#!/bin/sh\n[ "$1" = status ] && exit 0\necho "UNHEALTHY: gpu 3 lost"\nexit {code}\n',
    )
    assert site.run("health_check.sh", CLOCKGATE_HEALTH="1").returncode == 0
    assert site.state[0] == state
    assert ("gpu 3 lost" in site.state[1]) == (code == 1)


def test_epilog_breaks_the_leases_of_its_job_and_no_other(daemon: Clockgated, site: Slurm) -> None:
    with daemon.channel() as channel:
        stub = gate_pb2_grpc.GateStub(channel)
        streams = [
            stub.RegisterJob(iter([gate_pb2.RegisterJobRequest(job=job, rank=0)]))
            for job in ("slurm-42", "slurm-421", "slurm-42")
        ]
        for stream in streams:
            next(iter(stream))
        done = site.run("epilog.sh", SLURM_JOB_ID="42")
        assert done.returncode == 0
        assert done.stderr.count("is left") == 2
        left = json.loads(daemon.ctl("leases", "--json").stdout)["leases"]
        assert [one["job"] for one in left] == ["slurm-421"]
        with pytest.raises(grpc.RpcError):
            for _ in streams[0]:
                pass


def test_a_job_runs_one_launcher_a_node_and_ends_with_its_code(site: Slurm) -> None:
    for code in ("0", "76", "78"):
        (site.folder / "srun_code").write_text(code)
        assert site.run("train.sbatch", "--output_dir", "/shared/one", **JOB).returncode == int(code)
    (first, *_) = site.calls("srun")
    assert "clockgate-train launch --nnodes 2 --nproc_per_node 4 --rdzv_backend c10d" in first
    assert "--rdzv_endpoint node7:29442 --rdzv_id 42-0 -- --job_name slurm-42 --output_dir /shared/one" in first
    assert not site.calls("scontrol requeue")


@pytest.mark.parametrize("code", ["75", "79"])
def test_a_job_that_left_a_checkpoint_is_queued_again_until_it_was_often_enough(site: Slurm, code: str) -> None:
    (site.folder / "srun_code").write_text(code)
    assert site.run("train.sbatch", **JOB).returncode == int(code)
    assert site.calls("scontrol requeue") == ["scontrol requeue 42"]
    assert site.run("train.sbatch", **JOB, SLURM_RESTART_COUNT="20").returncode == int(code)
    assert len(site.calls("scontrol requeue")) == 1


def test_before_the_time_limit_the_ranks_are_asked_to_save_and_the_job_is_queued_again(site: Slurm) -> None:
    (site.folder / "srun_code").write_text("75")
    (site.folder / "until_asked").touch()
    with site.start("train.sbatch", **JOB) as process:
        signal_once_it_runs(site, process, signal.SIGUSR1)
        assert process.wait(20) == 75
    assert site.calls("scancel") == ["scancel --signal=USR2 42.0"]
    assert site.calls("scontrol requeue") == ["scontrol requeue 42"]


def test_a_cancelled_job_is_not_queued_again(site: Slurm) -> None:
    (site.folder / "srun_code").write_text("75")
    (site.folder / "until_asked").touch()
    with site.start("train.sbatch", **JOB) as process:
        signal_once_it_runs(site, process, signal.SIGTERM)
        (site.folder / "asked").touch()
        assert process.wait(20) == 75
    assert not site.calls("scontrol requeue")
