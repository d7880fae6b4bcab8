"""Ranks started in every way that people start them, on one node and on two, down to exit code and outcome.json."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from clockgate_trainer.checkpoint.files import HOST
from clockgate_trainer.checkpoint.manifest import Manifest
from clockgate_trainer.checkpoint.verify import read_manifest, verify
from clockgate_trainer.outcome import read_outcome
from support.ports import free_port
from support.script_lines import SCRIPT_LINES
from support.tiny_model import make_model, make_rows
from support.tools import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

LIMIT_S = 280
LAUNCH = "import sys; from clockgate_trainer import launch; sys.exit(launch.run('support.small_rank', sys.argv[1:]))"
TORCHRUN = ("-W", "ignore", "-m", "torch.distributed.run")
SMALL = ("--max_steps", "2", "--gradient_accumulation_steps", "2", "--time_sync_check", "false", "--device", "cpu")


def start(words: Sequence[str], folder: Path, variables: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
    """Start Python with `words`; it works in `folder`."""
    without = ("OMP_NUM_THREADS", "CLOCKGATE_ADDRESS", "WORLD_SIZE")
    environment = {name: value for name, value in os.environ.items() if name not in without}
    path = os.pathsep.join(str(Path(each).absolute()) for each in sys.path)
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env={**environment, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", **(variables or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(*started: "subprocess.Popen[str]") -> tuple[list[int], str]:
    """Exit codes of all, and everything that they told."""
    try:
        told = [process.communicate(timeout=LIMIT_S)[0] for process in started]
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.communicate()
    return [process.returncode for process in started], "\n".join(told)


def demand_trained(folder: Path, ranks: int) -> None:
    """The run in `folder` has done two steps with `ranks` ranks, saved them, and says so."""
    outcome = read_outcome(folder)
    assert outcome is not None
    assert (outcome.code, outcome.step, outcome.ranks) == (0, 2, ())
    checkpoint = folder / "checkpoint-2"
    assert verify(checkpoint) == ()
    manifest = read_manifest(checkpoint, HOST)
    assert isinstance(manifest, Manifest)
    assert manifest.world_size == ranks


def two_nodes_by_address() -> list[str]:
    """What both nodes of one rank each are told, all but their own number."""
    address = ["--master_addr", "127.0.0.1", "--master_port", str(free_port())]
    return ["--nnodes", "2", "--nproc_per_node", "1", *address]


def test_torchrun_on_one_node(tmp_path: Path) -> None:
    words = [*TORCHRUN, "--standalone", "--nproc_per_node", "2", "-m", "support.small_rank", *SMALL]
    codes, told = end(start([*words, "--output_dir", "run"], tmp_path))
    assert codes == [0], told
    demand_trained(tmp_path / "run", 2)


def test_torchrun_on_two_nodes_that_meet_at_a_master_address(tmp_path: Path) -> None:
    meeting = two_nodes_by_address()
    nodes = [
        start(
            [*TORCHRUN, *meeting, "--node_rank", node, "-m", "support.small_rank", *SMALL, "--output_dir", "run"],
            tmp_path,
        )
        for node in ("1", "0")
    ]
    codes, told = end(*nodes)
    assert codes == [0, 0], told
    demand_trained(tmp_path / "run", 2)


def test_launch_on_two_nodes_that_meet_by_rendezvous(tmp_path: Path) -> None:
    meeting = ["--nnodes", "2", "--nproc_per_node", "1", "--rdzv_backend", "c10d", "--rdzv_id", "job"]
    meeting += ["--rdzv_endpoint", f"127.0.0.1:{free_port()}"]
    nodes = [start(["-c", LAUNCH, *meeting, "--", *SMALL, "--output_dir", "run"], tmp_path) for _ in range(2)]
    codes, told = end(*nodes)
    assert codes == [0, 0], told
    assert "127.0.0.1 is a loopback address here" in told
    assert told.count("set for the ranks: OMP_NUM_THREADS=") == 2
    demand_trained(tmp_path / "run", 2)


def test_a_refusal_on_two_nodes_reaches_both_launchers_as_its_own_code(tmp_path: Path) -> None:
    meeting = two_nodes_by_address()
    nodes = [
        start(
            ["-c", LAUNCH, *meeting, "--node_rank", node, "--", *SMALL, "--output_dir", "run", "--seed", node], tmp_path
        )
        for node in ("0", "1")
    ]
    codes, told = end(*nodes)
    assert codes == [78, 78], told
    assert "--seed is 0 on rank 0 and 1 on rank 1" in told
    outcome = read_outcome(tmp_path / "run")
    assert outcome is not None
    assert outcome.code == 78


def test_a_guides_line_for_accelerate_with_the_stand_in_for_qlora(tmp_path: Path) -> None:
    line = SCRIPT_LINES["guide-65b"]
    make_model(tmp_path / "model")
    make_rows(tmp_path / "rows.jsonl")
    (tmp_path / "qlora.py").write_bytes((ROOT / "examples" / "qlora.py").read_bytes())
    flags = line.with_values(
        {"model_name_or_path": "model", "dataset": "rows.jsonl", "max_steps": "2", "output_dir": "run"}
    )
    here = {"4": "2", "29500": str(free_port())}
    launcher = [here.get(word, word) for word in line.launcher[2:]]
    # Without two GPUs accelerate starts one process, unless it is told to start more.
    words = ["-W", "ignore", "-m", "accelerate.commands.launch", "--multi_gpu", *launcher, "qlora.py", *flags]
    codes, told = end(start(words, tmp_path))
    assert codes == [0], told
    demand_trained(tmp_path / "run", 2)
