"""What docs/adapters.md shows, tried: every command on a run of a small model, and every test that it names."""

import io
import json
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from clockgate_trainer.__main__ import main
from clockgate_trainer.flags.parse import parse
from support.tiny_model import make_model, make_rows
from support.tools import ROOT

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(200),
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning"),  # peft asks by an old name
]

PAGE = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = [line for block in BLOCKS for line in block.splitlines()]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a finished run and a file of prompts, as the working folder."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)}
    make_model(tmp_path / "model")
    make_rows(tmp_path / "rows.jsonl")
    make_rows(tmp_path / "prompts.jsonl", 3)
    monkeypatch.chdir(tmp_path)
    flags = (
        "--model_name_or_path model --dataset rows.jsonl --dataset_format input-output --output_dir run --device cpu "
        "--max_steps 4 --save_steps 2 --lora_r 4 --gradient_accumulation_steps 1 --learning_rate 0.01 "
        "--time_sync_check false"
    )
    assert main(shlex.split(flags)) == 0
    yield tmp_path
    for number, handler in before.items():
        signal.signal(number, handler)


def test_every_command_of_the_page_works(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(COMMANDS) == 6
    # The merged model is made before it is asked.
    for line in sorted(COMMANDS, key=lambda line: "clockgate-train merge" not in line):
        said, pipe, command = line.rpartition(" | ")
        if pipe:
            monkeypatch.setattr("sys.stdin", io.StringIO(shlex.split(said)[1] + "\n"))
        words = shlex.split(command)
        assert words[0] == "clockgate-train"
        capsys.readouterr()
        assert main([*words[1:], "--device", "cpu"]) == 0
        out = capsys.readouterr().out
        assert out
        if "--json" in words and words[1] == "generate":
            keys = {"prediction", "prediction_with_input", "tokens", "ended", "output"}
            assert all(keys <= json.loads(each).keys() for each in out.splitlines())
            assert len(out.splitlines()) == 3
    assert {path.name for path in work.iterdir()} >= {"merged", "merged-bf16"}


def test_page_names_what_exists() -> None:
    there = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("*/**/test_*.py"))
    for name in re.findall(r"\btest_\w+", PAGE):
        assert f"def {name}(" in there
    assert parse([]).held_out_rows == 0
    assert parse(["--do_predict"]).held_out_rows == 1024
