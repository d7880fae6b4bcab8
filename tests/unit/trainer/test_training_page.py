"""The commands of docs/training.md."""

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
