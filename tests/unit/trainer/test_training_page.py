"""The commands of docs/training.md, and the lines that people bring from qlora.py's guides."""

import re
import shlex
from pathlib import Path

import pytest
from clockgate_trainer.flags.parse import read_command_line
from clockgate_trainer.planner import command
from support.tools import ROOT


def typed(page: str) -> list[list[str]]:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith("clockgate-train ")]


@pytest.mark.parametrize("words", typed("docs/training.md"), ids=" ".join)
def test_commands_of_the_page_work(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text("lora_r: 32\n")
    if words[0] == "plan":
        assert command.main(words[1:]) == 0
        assert capsys.readouterr().out
        return
    assert read_command_line(words[: words.index(">")] if ">" in words else words).settings.output_dir


GUIDE_7B = (
    "--model_name_or_path huggyllama/llama-7b --output_dir ./output/guanaco-7b --device_map auto "
    "--per_device_train_batch_size 1 --gradient_accumulation_steps 16 --bf16 --bits 4 --double_quant --quant_type nf4 "
    "--lora_r 64 --lora_alpha 16 --dataset oasst1"
)
GUIDE_65B = (
    "--model_name_or_path huggyllama/llama-65b --output_dir ./output/guanaco-65b --per_device_train_batch_size 1 "
    "--gradient_accumulation_steps 32 --max_memory \"{0: '46000MB', 1: '46000MB', 2: '46000MB', 3: '46000MB'}\" "
    "--max_steps 500 --learning_rate 0.0001"
)
GUIDE_DATA = '--dataset="path/to/self_instruct.json" --dataset_format="self-instruct"'
GUIDE_TIME = "--time_sync_check true --max_sync_delay 5"


@pytest.mark.parametrize("line", [GUIDE_7B, GUIDE_65B, GUIDE_DATA, GUIDE_TIME])
def test_lines_of_the_guides_are_understood(line: str) -> None:
    assert read_command_line(shlex.split(line)).settings


@pytest.mark.parametrize(("line", "gpus"), [(GUIDE_7B, "4"), (GUIDE_65B, "4")])
def test_lines_of_the_guides_are_planned(line: str, gpus: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--gpu", "a6000", "--gpus", gpus, *shlex.split(line)]) in (0, 1)
    assert "one copy, peak" in capsys.readouterr().out
