"""What docs/data.md shows and names, tried."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from clockgate_trainer.data.formats import COLUMNS
from clockgate_trainer.data.hub_sets import NAMED
from clockgate_trainer.data.record import WARNINGS, Kind
from support.tools import ROOT

pytestmark = pytest.mark.integration

PAGE = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")


def test_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
    program = tmp_path / "clockgate-train"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m clockgate_trainer "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    work = tmp_path / "work"
    work.mkdir()
    for part in block.split("$ ")[1:]:
        command, _, shown = part.partition("\n")
        done = subprocess.run(
            ["sh", "-c", command], cwd=work, env=environment, capture_output=True, text=True, check=False, timeout=50
        )
        assert done.stdout == shown


def test_page_names_every_format_set_and_finding() -> None:
    named = set(re.findall(r"`([\w-]+)`", PAGE))
    assert set(COLUMNS) | set(NAMED) | {kind.value for kind in Kind} <= named
    warns = next(line for line in PAGE.splitlines() if "refuses with `--strict_data`" in line)
    assert {kind.value for kind in WARNINGS} == set(re.findall(r"`([a-z_]+)`", warns))
