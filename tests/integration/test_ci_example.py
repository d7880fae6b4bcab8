"""The pipeline of examples/ci: its YAML, and the commands of its checking job, run one after the other."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.launch import split
from support.tools import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

FOLDER = ROOT / "examples" / "ci"
# What a workplace without a network cannot do, and this environment has done.
NOT_TRIED = ("Install",)


@pytest.fixture(scope="module")
def jobs() -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load((FOLDER / "training-pipeline.yml").read_text(encoding="utf-8"))["jobs"]
    return found


def test_the_commands_of_the_checking_job_succeed_in_a_copy(jobs: Mapping[str, Any], tmp_path: Path) -> None:
    work = shutil.copytree(FOLDER, tmp_path / "work")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in (("clockgate-train", "-m clockgate_trainer "), ("python", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words}"$@"\n', encoding="utf-8")
        program.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(str(Path(each).absolute()) for each in sys.path),
        "HF_HUB_OFFLINE": "1",
    }
    tried = [step for step in jobs["check"]["steps"] if "run" in step and step["name"] not in NOT_TRIED]
    assert len(tried) == 4
    for step in tried:
        done = subprocess.run(
            ["bash", "-e", "-c", step["run"]], cwd=work, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{step['name']}: {done.stdout}{done.stderr}"
    assert (work / "runs" / "ci" / "checkpoint-2" / "manifest.json").exists()


def test_the_training_job_waits_for_the_check_and_its_flags_are_known(jobs: Mapping[str, Any]) -> None:
    job = jobs["train"]
    assert job["needs"] == "check"
    (train,) = (step["run"] for step in job["steps"] if step.get("name") == "Train")
    (line,) = (line for line in train.splitlines() if "clockgate-train launch" in line)
    words = shlex.split(line.partition("||")[0])
    torch_words, flags = split(words[2:])
    assert torch_words == ["--nproc_per_node", "gpu", "--max_restarts", "2"]
    flags[flags.index("run.yaml")] = str(FOLDER / "run.yaml")
    assert parse(flags).max_steps == 200
    subprocess.run(["bash", "-n", "-c", train], check=True)
