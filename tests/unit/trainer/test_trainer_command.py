import subprocess
import sys

import pytest
from clockgate_trainer import __version__
from clockgate_trainer.__main__ import main


def test_version_and_help_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"clockgate-train {__version__}\n"
    assert main(["--help"]) == 0
    assert "--max_sync_delay" in capsys.readouterr().out


def test_wrong_flag_ends_with_2_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--max_step", "3"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "--max_steps" in told


def test_help_does_not_wait_for_torch() -> None:
    script = "import sys; from clockgate_trainer.__main__ import main; main(['--help']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": ":".join(sys.path)}, timeout=50,
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.endswith("False\n")
