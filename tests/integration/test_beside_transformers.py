"""Two faults that cost a run of transformers.Trainer its newest weights, beside a run of ours that keeps them.

Should a newer transformers keep them too, the first assertion of a test fails: docs/reliability.md must then say so.
"""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is left of all four runs, from one process that imports transformers once."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "support.side_by_side", str(tmp_path_factory.mktemp("beside"))],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=280,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_clock_set_back_costs_transformers_the_checkpoint_just_saved_and_us_the_oldest(left: dict[str, Any]) -> None:
    assert left["theirs_rotated"] == ["checkpoint-2", "checkpoint-4"], "transformers keeps checkpoint-6 as well"
    assert left["ours_rotated"] == ["checkpoint-4", "checkpoint-6"]


def test_sigterm_to_one_rank_costs_transformers_the_job_and_ends_ours_with_a_verified_checkpoint(
    left: dict[str, Any],
) -> None:
    theirs, ours = left["theirs_signalled"], left["ours_signalled"]
    assert theirs["codes"] != [0, 0], "transformers ends both ranks in order as well"
    assert theirs["last"] == ["checkpoint-is-incomplete.txt"], "transformers would resume from a whole checkpoint"
    assert ours["codes"] == [75, 75]
    assert ours["verified"]
    assert all(ours["verified"])
