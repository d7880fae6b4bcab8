"""Published qlora.py command lines: understood as they stand, every changed word told, planned with honest memory."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from clockgate_trainer.errors import UsageError
from clockgate_trainer.flags.parse import notices, parse, read_command_line
from clockgate_trainer.flags.spellings import other_spellings
from clockgate_trainer.planner import command
from support.script_lines import SCRIPT_LINES, ScriptLine
from transformers import LlamaConfig

TAKEN = [line for line in SCRIPT_LINES.values() if line.refused is None]
PRESET = {size: ["--preset", f"guanaco-{size}"] for size in ("7b", "13b", "33b", "65b")}
SIZED = [line for line in SCRIPT_LINES.values() if line.shape is not None]
# Linear weights of the Llama shapes, and of embedding and head: layers x (4 h^2 + 3 h f), and 2 x 32,000 h.
LLAMA = {"7B": (32, 4096, 11008), "13B": (40, 5120, 13824), "33B": (60, 6656, 17920), "65B": (80, 8192, 22016)}


def name_of(line: ScriptLine) -> str:
    return line.name


def planned(capsys: pytest.CaptureFixture[str], line: ScriptLine, *, code: int = 0, **values: str) -> dict[str, Any]:
    assert command.main(["--json", "--gpu", "h200", "--gpus", "1", *line.with_values(values)]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def nf4_bytes(shape: str) -> float:
    """A weight takes half a byte, and with double quantisation each 64 a byte and each 16,384 a float32."""
    layers, hidden, inner = LLAMA[shape]
    return layers * (4 * hidden**2 + 3 * hidden * inner) * (1 / 2 + 1 / 64 + 4 / (64 * 256))


@pytest.mark.parametrize("line", TAKEN, ids=name_of)
def test_a_published_line_is_taken_as_it_is_and_every_respelled_word_is_told(line: ScriptLine) -> None:
    read = read_command_line(line.flags)
    mapped = [word[2:] for word in line.flags if word.startswith("--") and word[2:] in other_spellings()]
    for word in mapped:
        assert any(f"--{word} " in notice for notice in read.notices), read.notices


@pytest.mark.parametrize("line", [each for each in SCRIPT_LINES.values() if each.refused], ids=name_of)
def test_a_line_that_cannot_be_followed_is_refused_with_what_to_do(line: ScriptLine) -> None:
    with pytest.raises(UsageError, match=line.refused):
        parse(line.flags)


def test_flags_of_the_guanaco_scripts_keep_their_values() -> None:
    found = parse(SCRIPT_LINES["finetune-guanaco-33b"].flags)
    assert (found.learning_rate, found.lora_dropout, found.max_steps, found.save_steps) == (1e-4, 0.05, 1875, 200)
    assert (found.source_max_len, found.target_max_len, found.seed, found.data_seed) == (16, 512, 0, 42)
    assert (found.eval_dataset_size, found.max_grad_norm, found.bits, found.bf16) == (1024, 0.3, 4, True)


@pytest.mark.parametrize("size", ["7b", "13b", "33b", "65b"])
def test_a_guanaco_preset_is_its_script_but_for_evaluation(size: str) -> None:
    script, preset = asdict(parse(SCRIPT_LINES[f"finetune-guanaco-{size}"].flags)), asdict(parse(PRESET[size]))
    others = {name for name, value in script.items() if preset[name] != value}
    assert others <= {
        "output_dir", "do_eval", "do_mmlu_eval", "eval_strategy", "eval_steps", "eval_dataset_size", "max_eval_samples",
        "per_device_eval_batch_size", "max_new_tokens",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "rate", "warmup", "accumulation"),
    [
        ("seed-7b", 2e-4, 0.03, 16),
        ("seed-13b", 1e-4, 0.05, 32),
        ("seed-33b", 5e-5, 0.08, 32),
        ("seed-65b", 1e-5, 0.1, 64),
    ],
)
def test_a_seed_preset_has_the_numbers_of_the_guide(name: str, rate: float, warmup: float, accumulation: int) -> None:
    found = parse(["--preset", name])
    assert (found.learning_rate, found.warmup_ratio, found.gradient_accumulation_steps) == (rate, warmup, accumulation)
    assert found.lr_scheduler_type == "constant_with_warmup"
    assert (found.bits, found.quant_type, found.double_quant, found.bf16) == (4, "nf4", True, True)


def test_a_typographic_dash_is_read_as_a_flag_and_told() -> None:
    read = read_command_line(SCRIPT_LINES["readme-rate"].flags)
    assert read.settings.learning_rate == 1e-4
    assert any("typographic" in notice for notice in read.notices)


def test_a_limit_that_only_a_split_would_keep_is_told() -> None:
    found = notices(parse(SCRIPT_LINES["guide-65b"].flags))
    assert any("--max_memory limits plan and --device_map auto alone" in notice for notice in found)
    split = notices(parse([*SCRIPT_LINES["guide-65b"].flags, "--device_map", "auto"]))
    assert not any("--max_memory" in notice for notice in split)


@pytest.mark.parametrize("line", SIZED, ids=name_of)
def test_a_published_line_is_planned_without_a_download(line: ScriptLine, capsys: pytest.CaptureFixture[str]) -> None:
    # This one allows itself 46 GB a device and leaves --bf16 out: at float32 it takes more.
    fits = line.name != "guide-65b"
    found = planned(capsys, line, code=0 if fits else 1)
    assert found["fits"] is fits
    assert fits or "--bf16" in found["advice"][0]
    assert found["peak_bytes"] > found["memory_bytes"]["weights"]
    assert any("nothing was downloaded" in note for note in found["notes"])


@pytest.mark.parametrize("size", LLAMA)
def test_weights_of_the_guanaco_lines_are_those_of_the_arithmetic(
    size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = planned(capsys, SCRIPT_LINES[f"finetune-guanaco-{size.lower()}"])
    hidden = LLAMA[size][1]
    ends_bfloat16 = 2 * 32000 * hidden * 2
    assert found["memory_bytes"]["weights"] == pytest.approx(nf4_bytes(size) + ends_bfloat16, rel=0.001)
    if size == "65B":
        # 33.4 GB, and not the 16 GB that one guide gives.
        assert nf4_bytes(size) == pytest.approx(33.5e9, rel=0.005)
    assert found["steps"] == 1875
    assert found["rows_per_step"] == 16


def test_a_config_file_of_the_real_size_gives_the_plan_of_the_published_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layers, hidden, inner = LLAMA["65B"]
    config = LlamaConfig(
        vocab_size=32000,
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=inner,
        num_attention_heads=64,
    )
    config.save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    line = SCRIPT_LINES["finetune-guanaco-65b"]
    found, named = planned(capsys, line, model_name_or_path=str(tmp_path)), planned(capsys, line)
    assert {**found, "notes": []} == {**named, "notes": []}
