"""Published qlora.py command lines on something tiny: other paths and counts of steps, every other word as it is."""

import json
import string
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from clockgate_trainer.__main__ import main
from clockgate_trainer.checkpoint.verify import verify
from clockgate_trainer.outcome import read_outcome
from peft import PeftModel
from safetensors.torch import load_file
from support.fake_daemon import FakeDaemon
from support.script_lines import SCRIPT_LINES
from support.tiny_model import make_model, make_rows
from transformers import AutoModelForCausalLM

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

STEPS = 2
# More than the scripts hold out, so that holding out is what they do.
ROWS = 1040
SELF_INSTRUCT = ("readme-self-instruct", "guide-self-instruct")
COUNTS = {"max_steps": str(STEPS), "save_steps": "2", "max_eval_samples": "8"}
PLAIN = ("readme-first", "readme-rate", "readme-data", "guide-7b", "guide-data", "guide-memory", "guide-save",
         "guide-exchange")  # fmt: skip
SCRIPTS = tuple(name for name in SCRIPT_LINES if name.startswith("finetune"))


def tiny(name: str, **values: str) -> list[str]:
    """The flags of the line `name` with this folder's model and data, and `values`."""
    data = "self_instruct.json" if name in SELF_INSTRUCT else "rows.jsonl"
    return SCRIPT_LINES[name].with_values({"model_name_or_path": "model", "dataset": data, **values})


def distinct(names: Iterable[str]) -> list[Any]:
    """One of the lines that come to the same words here, under the names of all of them."""
    same: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        counts = {**COUNTS, "eval_steps": "2"} if name in SCRIPTS else COUNTS
        same.setdefault(tuple(tiny(name, output_dir="run", **counts)), []).append(name)
    return [pytest.param(alike[0], id=" ".join(alike)) for alike in same.values()]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder like a checkout of qlora.py's repository, with a model and data beside."""
    folder = tmp_path_factory.mktemp("home")
    make_model(folder / "model", vocabulary=255)
    make_rows(folder / "rows.jsonl", ROWS)
    pairs = [json.loads(line) for line in (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()[:20]]
    asked = [{"prompt": pair["input"], "completion": pair["output"]} for pair in pairs]
    (folder / "self_instruct.json").write_text(json.dumps(asked), encoding="utf-8")
    questions = [
        {"subject": subject, "input": f"{sign}?\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:", "output": "ABCD"[place % 4]}
        for subject in ("letters", "digits")
        for place, sign in enumerate(string.ascii_letters[:4])
    ]
    mmlu = folder / "data" / "mmlu"
    mmlu.mkdir(parents=True)
    (mmlu / "five_shot_mmlu_val.json").write_text(json.dumps(questions), encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def _here(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In that folder, outside any launcher, on one thread: for matrices this small more threads only wait."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for name in ("WORLD_SIZE", "CLOCKGATE_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def daemon(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    with FakeDaemon(home / "d.sock") as made:
        monkeypatch.setenv("CLOCKGATE_ADDRESS", made.address)
        yield made


def train(name: str, **values: str) -> Path:
    """Train the line `name` with `values`, to exit 0; its run folder, whose last checkpoint is verified."""
    folder = Path("runs") / name
    steps = int(values.setdefault("max_steps", str(STEPS)))
    assert main(tiny(name, output_dir=str(folder), **values)) == 0
    outcome = read_outcome(folder)
    assert outcome is not None
    assert (outcome.code, outcome.step) == (0, steps)
    assert verify(folder / f"checkpoint-{steps}") == ()
    return folder


def measured(folder: Path, name: str) -> list[float]:
    """Every value of the figure `name` in the run's log, in order."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line[name] for line in lines if name in line]


@pytest.mark.parametrize("name", distinct(SCRIPTS))
def test_a_published_script_trains_evaluates_and_answers_questions(name: str) -> None:
    often = name == "finetune-guanaco-7b"
    folder = train(name, **COUNTS, eval_steps="1" if often else "2")
    assert len(measured(folder, "loss")) == STEPS
    assert len(measured(folder, "eval_loss")) == (2 if often else 1)
    assert all(0 < loss < 10 for loss in measured(folder, "eval_loss"))
    assert all(0 <= share <= 1 for share in measured(folder, "mmlu_eval_accuracy"))


@pytest.mark.parametrize("name", distinct([*PLAIN, *SELF_INSTRUCT]))
def test_a_line_of_a_readme_or_a_guide_trains(name: str) -> None:
    folder = train(name)
    assert len(measured(folder, "loss")) == STEPS
    assert all(0 < loss < 10 for loss in measured(folder, "loss"))


def test_the_line_of_the_clock_guide_trains_under_its_daemon(daemon: FakeDaemon) -> None:
    folder = train("guide-clock")
    # Before the first step, and for each; a question that comes late stands for the ones before it.
    assert {request.step for request in daemon.requests} >= {0, STEPS}
    lines = map(json.loads, (folder / "events.jsonl").read_text(encoding="utf-8").splitlines())
    voted = [line["step_verdict"] for line in lines if line["event"] == "gate" and line["kind"] == "STEP"]
    assert voted == ["PROCEED"] * len(voted)
    assert len(voted) >= STEPS


def test_the_line_that_resumes_goes_on_from_the_named_checkpoint() -> None:
    folder = Path("runs") / "guide-resume"
    first = {"resume_from_checkpoint": "auto", "max_steps": "1"}
    train("guide-resume", **first)
    train("guide-resume", resume_from_checkpoint=str(folder / "checkpoint-1"), max_steps="3")
    assert len(measured(folder, "loss")) == 3


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft asks by transformers' old name
def test_the_adapter_of_a_script_has_trained_weights_for_every_layer_and_fits_an_odd_base() -> None:
    """Others have saved 443 bytes; or a base grown by a pad token, which its adapter then does not fit."""
    folder = Path("runs") / "guide-7b"
    if not folder.exists():
        train("guide-7b")
    path = folder / f"checkpoint-{STEPS}"
    weights = load_file(path / "adapter_model.safetensors")
    layers = {name.rpartition(".lora_")[0] for name in weights}
    assert len(layers) == 2 * 7
    assert len(weights) == 2 * len(layers)
    assert all(weights[f"{layer}.lora_B.weight"].abs().sum() > 0 for layer in layers)
    base = AutoModelForCausalLM.from_pretrained("model")
    assert base.get_input_embeddings().num_embeddings == 255
    assert PeftModel.from_pretrained(base, path).peft_config["default"].r == 64
