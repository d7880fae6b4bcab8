"""The transfer over a delayed path, once and small: that it runs and prints what it promises."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.daemon import environment
from support.tools import ROOT, lacking_for_namespaces, missing

pytestmark = pytest.mark.integration


def test_a_transfer_with_the_plan_and_one_without_are_measured() -> None:
    lacking = lacking_for_namespaces()
    if lacking is not None or not Path("/dev/net/tun").exists():
        missing(lacking or "/dev/net/tun")
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench/tuning_transfer.py"), "--pairs", "1", "--mib", "4", "--rtt-ms", "20"],
        capture_output=True, text=True, check=False, timeout=55, env=environment(),
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "bound without the plan: one connection reaches" in done.stdout
    assert "1 interleaved pairs" in done.stdout
