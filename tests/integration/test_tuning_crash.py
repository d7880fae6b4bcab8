"""Kill -9 at every system call of an apply, of a second one, of one that fails and of a revert, and of recoveries."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.daemon import environment
from support.tools import ROOT

pytestmark = pytest.mark.integration


def test_no_point_of_a_kill_leaves_a_mixed_state_after_recovery() -> None:
    program = Path(__file__).parents[1] / "support/tuning_crash.py"
    roots = ":".join(str(ROOT / name) for name in ("daemon", "protos", "tests"))
    done = subprocess.run(
        [sys.executable, program],
        capture_output=True,
        text=True,
        check=False,
        timeout=55,
        env=environment(PYTHONPATH=roots),
    )
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)

    assert found["mixed"] == []
    assert found["points"] >= 100
    assert found["killed_recoveries"] >= 100
