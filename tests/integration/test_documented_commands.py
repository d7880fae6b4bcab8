"""The commands that README and docs tell people to type, typed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from clockgate_trainer.outcome import read_outcome
from support.daemon import clockgated, toml
from support.tiny_model import make_model, make_rows
from support.tools import ROOT, require_tool

pytestmark = pytest.mark.integration

_PAGES = ("README.md", "CONTRIBUTING.md", "docs/api.md", "docs/gating.md")


def _commands(page: str, word: str) -> list[str]:
    """Command lines of a page's code blocks that start with `word`, continuation lines joined."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ") for line in lines if line.removeprefix("$ ").startswith(word)]


def _run(command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Type a command into a shell at the root of the tree, with this environment's programs in place of .venv's."""
    here = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{here}{os.pathsep}{os.environ['PATH']}"} | variables
    # At the beginning of a word: the path of a tool may lie below another folder of that name.
    typed = re.sub(r"(?<!\S)\.venv/bin/", f"{here}/", command)
    return subprocess.run(
        ["sh", "-c", typed], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("page", _PAGES)
def test_every_make_target_that_a_page_names_exists(page: str) -> None:
    for command in _commands(page, "make "):
        target = command.split("#")[0].split()[1]
        done = _run(f"make --dry-run {target}")
        assert done.returncode == 0, f"{page}: {command}: {done.stderr}"


def test_programs_of_the_readme_answer() -> None:
    commands = _commands("README.md", ".venv/bin/")
    assert commands
    for command in commands:
        done = _run(command)
        assert done.returncode == 0, f"{command}: {done.stderr}"


@pytest.mark.timeout(600)
def test_training_commands_of_the_readme_work_from_lint_to_verify(tmp_path: Path) -> None:
    work, programs = tmp_path / "work", tmp_path / "bin"
    programs.mkdir()
    make_model(work / "model")
    make_rows(work / "pairs.jsonl")
    program = programs / "clockgate-train"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -W error -m clockgate_trainer "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    path = os.pathsep.join(str(Path(each).absolute()) for each in sys.path)
    environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": path}
    commands = _commands("README.md", "clockgate-train ")
    assert [command.split()[1] for command in commands] == ["plan", "lint", "launch", "verify"]
    for command in commands:
        done = subprocess.run(
            ["sh", "-c", command.replace("1875", "2")], cwd=work, env=environment, capture_output=True, text=True,
            check=False, timeout=500,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    assert "step 2" in done.stdout
    assert read_outcome(work / "runs" / "one") is not None


def test_commands_of_the_api_page_answer_on_a_real_daemon(tmp_path: Path) -> None:
    grpcurl = require_tool("grpcurl")
    recording = tmp_path / "reading.jsonl"
    reading = {"after_s": 0, "bound_ns": 200_000, "identity": "ntp:192.0.2.1", "stratum": 2}
    recording.write_text(json.dumps(reading) + "\n", encoding="utf-8")
    config = toml(tmp_path, clock='source = "recorded"', extra=f'[recorded]\nfile = "{recording}"')
    commands = _commands("docs/api.md", "grpcurl ")
    assert len(commands) >= 8
    with clockgated(tmp_path, config) as daemon:
        for command in commands:
            done = _run(
                command.replace("grpcurl", str(grpcurl), 1),
                SOCKET=str(daemon.socket),
                ADMIN_SOCKET=str(daemon.admin_socket),
            )
            is_stream = "-max-time" in command
            # A stream never ends by itself: -max-time ends it with DeadlineExceeded after its first messages.
            assert done.returncode == 0 or (is_stream and "DeadlineExceeded" in done.stderr), (
                f"{command}: {done.stderr}"
            )
            assert done.stdout.strip(), f"{command} printed nothing"
