"""What docs/adapters.md shows, tried: every command on a run of a small model, and every test that it names."""

import io
import json
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from clockgate_trainer.__main__ import main
from clockgate_trainer.export.reload import load_trained
from clockgate_trainer.flags.parse import parse
from peft import PeftModel
from safetensors.torch import load_file
from support.tiny_model import make_model, make_rows
from support.tools import ROOT
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(200),
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning"),  # peft asks by an old name
]

PAGE = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = [line for block in BLOCKS for line in block.splitlines()]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a finished run and a file of prompts, as the working folder."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)}
    folder = tmp_path_factory.mktemp("adapters")
    make_model(folder / "model")
    make_rows(folder / "rows.jsonl")
    make_rows(folder / "prompts.jsonl", 3)
    flags = (
        "--model_name_or_path model --dataset rows.jsonl --dataset_format input-output --output_dir run --device cpu "
        "--max_steps 4 --save_steps 2 --lora_r 4 --gradient_accumulation_steps 1 --learning_rate 0.01 "
        "--time_sync_check false"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(shlex.split(flags)) == 0
        yield folder
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


def test_adapter_of_a_checkpoint_is_whole_and_gives_its_logits_in_plain_peft(work: Path) -> None:
    """Not the file of a few hundred bytes, without a weight, that wrappers have been seen to save."""
    checkpoint = work / "run" / "checkpoint-4"
    tensors = load_file(checkpoint / "adapter_model.safetensors")
    assert len(tensors) == 2 * 7 * 2
    assert all("lora_A" in name or "lora_B" in name for name in tensors)
    assert all(tensor.abs().sum() > 0 for tensor in tensors.values())
    size = (checkpoint / "adapter_model.safetensors").stat().st_size
    assert size > sum(tensor.nbytes for tensor in tensors.values()) > 30_000
    quantised = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.float32,
    )  # fmt: skip
    base = AutoModelForCausalLM.from_pretrained(work / "model", quantization_config=quantised, device_map={"": "cpu"})
    plain: Any = PeftModel.from_pretrained(base, checkpoint).eval()
    ours = load_trained(parse(["--model_name_or_path", "model", "--device", "cpu"]), torch.device("cpu"), checkpoint)
    tokens = torch.tensor([[1, 5, 6, 7]])
    torch.testing.assert_close(plain(tokens).logits, ours(tokens).logits)


def test_page_names_what_exists() -> None:
    there = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("*/**/test_*.py"))
    for name in re.findall(r"\btest_\w+", PAGE):
        assert f"def {name}(" in there
    assert parse([]).held_out_rows == 0
    assert parse(["--do_predict"]).held_out_rows == 1024
