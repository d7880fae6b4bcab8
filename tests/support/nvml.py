"""A stand-in for NVIDIA's management library, compiled from fake_nvml.c."""

import shutil
import subprocess
from pathlib import Path

import pytest
from support.tools import ROOT


def make_library(folder: Path, *, hangs: bool = False) -> Path:
    """`folder`/libnvidia-ml.so.1; the number in the file `mode` beside it is the error that it gives out.

    `hangs`: as a driver whose GPU does not answer. Skips the test where there is no compiler.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("cc is not on this machine")
    library = folder / "libnvidia-ml.so.1"
    words = ["-shared", "-fPIC", f'-DMODE_FILE="{folder / "mode"}"', *(["-DHANGS"] if hangs else [])]
    subprocess.run([compiler, *words, "-o", library, ROOT / "tests/support/fake_nvml.c"], check=True, timeout=60)
    return library
