import errno
import os
import subprocess
import sys
from pathlib import Path

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


def test_output_that_nobody_reads_ends_without_a_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-m", "clockgate_trainer", "plan", "--gpu", "h200", "--preset", "guanaco-7b"]
        done = subprocess.run(command, env={"PYTHONPATH": ":".join(sys.path)}, timeout=50, check=False,
                              stdout=writer, stderr=subprocess.PIPE, text=True)  # fmt: skip
    finally:
        os.close(writer)
    assert (done.returncode, "Traceback" in done.stderr, "BrokenPipe" in done.stderr) == (141, False, False)


def test_pipe_that_breaks_elsewhere_is_not_taken_for_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_a_pipe() -> str:
        raise BrokenPipeError(errno.EPIPE, "another pipe")

    monkeypatch.setattr("clockgate_trainer.__main__.help_text", break_a_pipe)
    with Path(os.devnull).open("w", encoding="utf-8") as heard, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", heard)
        with pytest.raises(BrokenPipeError, match="another pipe"):
            main(["--help"])
