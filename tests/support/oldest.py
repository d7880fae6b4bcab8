"""An interpreter with the oldest libraries that the daemon has to run on: those of Debian 12."""

import subprocess
import sys
from functools import cache
from pathlib import Path

from support.tools import ROOT, find_tool, missing

OLDEST = {"grpcio": "1.51.1", "protobuf": "4.21.12", "pyroute2": "0.7.2", "prometheus-client": "0.16.0"}
FOLDER = ROOT / ".cache/venv-oldest"


@cache
def oldest_python() -> Path:
    """An interpreter with the oldest runtime, kept for the next run."""
    python = FOLDER / "bin/python"
    pins = [f"{name}=={version}" for name, version in OLDEST.items()]
    complete = FOLDER / "complete"
    if not complete.exists() or complete.read_text() != " ".join(pins):
        # Wheels of that grpcio exist for Python 3.11 and older.
        base = sys.executable if sys.version_info[:2] == (3, 11) else find_tool("python3.11")
        if base is None:
            missing("Python 3.11 is not on this machine, for which the oldest runtime has wheels")
        subprocess.run([base, "-m", "venv", "--clear", FOLDER], check=True, capture_output=True, timeout=120)
        installed = subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pins],
            capture_output=True, text=True, check=False, timeout=200,
        )  # fmt: skip
        if installed.returncode != 0:
            missing(f"the oldest runtime cannot be installed: {installed.stderr.strip()[-300:]}")
        complete.write_text(" ".join(pins))
    return python
