"""Two real ranks over gloo save together: they believe in the same checkpoints, whatever goes wrong on one of them."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from clockgate_trainer.checkpoint.resume import clean_staging, find_resume
from clockgate_trainer.checkpoint.verify import verify

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


def run_pair(folder: Path) -> tuple[list[int], list[dict[str, Any]]]:
    """Exit codes and notes of the two ranks."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "support.save_rank", str(folder)], env={**environment, "RANK": str(rank)}
        )
        for rank in range(2)
    ]
    try:
        codes = [rank.wait(90) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait(10)
    notes = [json.loads((folder / f"seen-{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]
    return codes, notes


def test_two_ranks_believe_in_the_same_checkpoints_and_a_lost_writer_costs_none(tmp_path: Path) -> None:
    codes, (first, second) = run_pair(tmp_path)
    assert codes == [-signal.SIGKILL, 79]

    assert first["rank state"] == [0, 1]
    assert second["rank state"] == [1, 1]
    for name, saved, ranks in (
        ("good", True, []),
        ("adapters differ", False, [0, 1]),
        ("no room", False, [0]),
        ("no rename", False, [0]),
        ("good again", True, []),
    ):
        for seen in (first, second):
            assert (seen[name]["saved"], seen[name]["ranks"]) == (saved, ranks), name
    assert "No space left on device (errno 28)" in first["no room"]["reason"]
    assert "rank 0 could not write it" in second["no room"]["reason"]
    assert "COMMIT vote of step 6 was lost" in second["lost"]

    run = tmp_path / "run"
    entries = sorted(path.name for path in run.iterdir())
    assert entries[0].startswith(".staging-checkpoint-6-")
    assert entries[1:] == ["checkpoint-1", "checkpoint-5"]
    assert verify(run / "checkpoint-1") == ()
    clean_staging(run)
    found = find_resume(run, "auto")
    assert found is not None
    assert (found.step, found.passed_over) == (5, ())
