"""`clockgate-train plan` on the command lines that people have."""

import json
from pathlib import Path
from typing import Any

import pytest
from clockgate_trainer.planner import command
from support.tiny_model import make_model

GUANACO = ["--dataset", "oasst1", "--source_max_len", "16", "--target_max_len", "512", "--max_steps", "1875", "--bf16"]


def plan(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, Any]]:
    code = command.main(["--json", *argv])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("size", "parameters", "weights_gb", "peak_gb"),
    [("7b", 6.74, 3.9, 5.5), ("13b", 13.02, 7.2, 9.7), ("30b", 32.5, 17.4, 22.2), ("65b", 65.3, 34.5, 41.9)],
)
def test_published_recipes_get_honest_memory(
    capsys: pytest.CaptureFixture[str], size: str, parameters: float, weights_gb: float, peak_gb: float
) -> None:
    code, found = plan(capsys, "--gpu", "h200", "--model_name_or_path", f"huggyllama/llama-{size}", *GUANACO)
    assert code == 0
    assert found["parameters"] / 1e9 == pytest.approx(parameters, rel=0.005)
    assert found["memory_bytes"]["weights"] / 1e9 == pytest.approx(weights_gb, rel=0.01)
    assert found["peak_bytes"] / 1e9 == pytest.approx(peak_gb, rel=0.02)
    assert found["rows_per_step"] == 16
    assert found["parallelism"] == "data parallel"


def test_65b_on_four_small_devices_is_split_by_one_process(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--gpu", "rtx4090", "--gpus", "4", "--model_name_or_path", "huggyllama/llama-65b", *GUANACO]
    code, found = plan(capsys, *small, "--device_map", "auto")
    assert code == 0
    assert found["parallelism"] == "layer split"
    assert sum(found["layers_on_device"]) == 80
    assert found["data_parallel_ranks"] == 1
    code, found = plan(capsys, *small)
    assert code == 1
    assert any("--device_map auto" in sentence for sentence in found["advice"])


def test_effective_batch_counts_data_parallel_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = plan(
        capsys, "--gpu", "h200", "--gpus", "4", "--nodes", "2", "--model_name_or_path", "huggyllama/llama-7b", *GUANACO
    )
    assert code == 0
    assert found["rows_per_step"] == 1 * 16 * 8
    assert found["exchange_s"] == pytest.approx(2 * 7 / 8 * 159.9e6 * 4 / 1.25e9, rel=0.01)


def test_a_folder_with_a_config_alone_is_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = make_model(tmp_path / "full")
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "config.json").write_bytes((full / "config.json").read_bytes())
    code, found = plan(capsys, "--gpu", "h200", "--model_name_or_path", str(alone))
    assert code == 0
    assert found["parameters"] == 98_624


def test_people_get_the_answer_first_and_advice_last(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--gpu", "h200", "--model_name_or_path", "huggyllama/llama-7b", *GUANACO]) == 0
    text = capsys.readouterr().out
    assert text.startswith("huggyllama/llama-7b on 1 x 1 h200: data parallel")
    assert "one copy, peak" in text
    assert "--gradient_checkpointing false saves a third" in text


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["--gpu", "abacus"], 2, "--gpu is 'abacus': wanted one of h200"),
        (["--gpus", "0"], 2, "--gpus is 0: wanted more than 0"),
        (["--max_memory", "much"], 2, "--max_memory"),
        (["--no_such_flag"], 2, "unknown flag --no_such_flag"),
        (["--model_name_or_path", "/nowhere"], 78, "the configuration of /nowhere cannot be read"),
    ],
)
def test_mistakes_are_named(capsys: pytest.CaptureFixture[str], argv: list[str], code: int, said: str) -> None:
    base = ["--model_name_or_path", "huggyllama/llama-7b"]
    assert command.main([*base, *argv]) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "llama", "hidden_size": -1},
        {"model_type": "llama", "num_attention_heads": 0},
        {"model_type": "llama", "hidden_size": "x"},
    ],
)
def test_configuration_of_no_model_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: dict[str, object]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert command.main(["--gpu", "h200", "--model_name_or_path", str(tmp_path)]) == 78
    assert f"the configuration of {tmp_path} cannot be read" in capsys.readouterr().err
