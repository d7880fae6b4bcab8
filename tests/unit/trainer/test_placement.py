"""Where --device_map puts a model, on a machine without GPUs and on one whose GPUs are made up."""

from pathlib import Path

import pytest
import torch
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.planner.memory import GIB
from clockgate_trainer.train.placement import Placement, place_model

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
LLAMA_65B = ["--model_name_or_path", "huggyllama/llama-65b", "--bf16"]


def placed(*flags: str, device: torch.device = CPU, ranks: int = 1) -> Placement:
    return place_model(parse([*LLAMA_65B, *flags]), device, ranks)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Free bytes of each; a test changes them."""
    free = [141 * GIB, 141 * GIB]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(free))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number: (free[number], 141 * GIB))
    return free


def test_without_the_flag_a_whole_copy_is_on_the_ranks_own_device() -> None:
    assert placed(device=GPU, ranks=4).modules == {"": GPU}


def test_a_map_is_followed_and_one_process_on_the_cpu_needs_no_split() -> None:
    assert placed("--device_map", "{'': 'cpu'}").modules == {"": CPU}
    assert placed("--device_map", "auto").modules == {"": CPU}


@pytest.mark.parametrize(
    ("device_map", "device", "ranks", "said"),
    [
        ("auto", CPU, 2, "in 2 ranks: each rank trains a copy"),
        ("{'': 2}", GPU, 1, "names cuda:2: this machine has 2 GPUs"),
        ("{'model': 0, 'lm_head': 'cpu'}", GPU, 1, "mixes cpu and cuda"),
        ("{'': 1}", GPU, 2, "this rank's own device is cuda:0"),
    ],
)
@pytest.mark.usefixtures("two_gpus")
def test_a_map_that_cannot_be_followed_is_refused(device_map: str, device: torch.device, ranks: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        placed("--device_map", device_map, device=device, ranks=ranks)


def test_layers_are_split_when_a_copy_does_not_fit(two_gpus: list[int]) -> None:
    two_gpus[:] = [30 * GIB, 30 * GIB]
    found = placed("--device_map", "auto", device=GPU)
    assert found.split
    assert found.modules["model.embed_tokens"] == GPU
    assert found.modules["lm_head"] == torch.device("cuda", 1)
    assert sum(name.startswith("model.layers.") for name in found.modules) == 80
    assert found.note is not None
    assert found.note.startswith("layers are split: ")


def test_a_copy_that_fits_is_not_split_unless_the_flags_allow_less(two_gpus: list[int]) -> None:
    assert placed("--device_map", "auto", device=GPU).modules == {"": GPU}
    assert placed("--device_map", "auto", "--max_memory", "{0: '30GB', 1: '30GB'}", device=GPU).split
    assert placed("--device_map", "auto", "--max_memory_MB", "30000", device=GPU).split
    two_gpus[:] = [10 * GIB, 10 * GIB]
    with pytest.raises(ConfigError, match=r"a copy takes about .* the devices may give 10\.0, 10\.0"):
        placed("--device_map", "auto", device=GPU)


@pytest.mark.usefixtures("two_gpus")
def test_memory_of_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--max_memory names device 5: this machine has 2"):
        placed("--device_map", "auto", "--max_memory", "{5: '30GB'}", device=GPU)
