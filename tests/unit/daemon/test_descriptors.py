import resource
import subprocess
import sys

import pytest
from clockgated.descriptors import WANTED_DESCRIPTORS
from support.daemon import environment
from support.tools import ROOT

_CODE = (
    "import resource, sys\nfrom clockgated.descriptors import raise_limit\n"
    "resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))\n"
    "raised = raise_limit()\nprint(raised, *resource.getrlimit(resource.RLIMIT_NOFILE))"
)


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [(256, 20_000, WANTED_DESCRIPTORS), (256, 512, 512), (18_000, 20_000, 18_000)],
    ids=["up to what is wanted", "up to the hard limit", "never down"],
)
def test_the_soft_limit_is_raised(soft: int, hard: int, expected: int) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < hard:
        pytest.skip(f"the hard limit of this process is below {hard}")
    line = [sys.executable, "-W", "error", "-c", _CODE, str(soft), str(hard)]
    ran = subprocess.run(line, env=environment(), capture_output=True, text=True, check=True, timeout=30)
    assert ran.stdout.split() == [str(expected), str(expected), str(hard)]


def test_the_unit_names_the_same_number() -> None:
    unit = (ROOT / "packaging/systemd/clockgated.service").read_text()
    assert f"LimitNOFILE={WANTED_DESCRIPTORS}\n" in unit
