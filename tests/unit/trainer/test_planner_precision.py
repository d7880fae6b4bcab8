"""Memory that plan predicts for every precision and optimizer, against the bytes that real models of the form hold."""

from pathlib import Path
from typing import Any

import pytest
import torch
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.planner.devices import named_device
from clockgate_trainer.planner.inventory import read_shape
from clockgate_trainer.planner.layout import Parallelism
from clockgate_trainer.planner.plan import Machines, make_run_plan, precision_of, trained_by
from clockgate_trainer.planner.speed import flops_per_token
from clockgate_trainer.train.model import build_model
from clockgate_trainer.train.optim import make_optimizer
from support.tiny_model import make_tokenizer
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

CPU = torch.device("cpu")
CONFIG = LlamaConfig(
    vocab_size=128,
    hidden_size=256,
    intermediate_size=704,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=256,
)
LLAMA_7B = {"num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    logging.disable_progress_bar()
    path = tmp_path_factory.mktemp("model")
    LlamaForCausalLM(CONFIG).save_pretrained(path)
    make_tokenizer().save_pretrained(path)
    return path


def held_by(module: torch.nn.Module) -> int:
    """Bytes of the weights under `module` that are no adapter's; the scales of 8-bit rows are left out, as in plan."""
    return sum(tensor.nbytes for name, tensor in module.named_parameters() if "lora_" not in name)


@pytest.mark.parametrize(
    "flags",
    [
        ["--bits", "8", "--bf16"],
        ["--bits", "8"],
        ["--bits", "16", "--bf16"],
        ["--bits", "16", "--fp16"],
        ["--bits", "16"],
        ["--bits", "32", "--bf16"],
        ["--bits", "32"],
        ["--full_finetune", "--bits", "32", "--fp16"],
        ["--full_finetune", "--bits", "16", "--bf16"],
    ],
    ids=" ".join,
)
def test_weights_are_what_the_model_holds(folder: Path, flags: list[str]) -> None:
    settings = parse(["--model_name_or_path", str(folder), *flags])
    plan = make_run_plan(settings, read_shape(CONFIG), Machines(named_device("h200"), 1, 1, 1, 1e9))
    assert plan.parts.weights == pytest.approx(held_by(build_model(settings, CPU)), rel=0.004)


def bytes_after_a_step(settings: Any, model: torch.nn.Module) -> tuple[int, int]:
    """Bytes of the gradients and of the optimizer's state, after one step."""
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = make_optimizer(settings, trained, CPU)
    for each in trained:
        each.grad = torch.ones_like(each)
    optimizer.step()
    # The table that 8-bit values stand for is one for all weights, and a step is counted for each.
    state = [
        value
        for per_weight in optimizer.state.values()
        for name, value in per_weight.items()
        if isinstance(value, torch.Tensor) and "qmap" not in name and name != "step"
    ]
    return sum(each.grad.nbytes for each in trained if each.grad is not None), sum(value.nbytes for value in state)


@pytest.mark.parametrize(
    "flags",
    [
        ["--optim", "adamw_torch"],
        ["--optim", "adamw_8bit"],
        ["--full_finetune", "--bits", "32", "--optim", "adamw_torch"],
        ["--full_finetune", "--bits", "32", "--bf16", "--optim", "paged_adamw_32bit"],
        ["--full_finetune", "--bits", "16", "--bf16", "--optim", "adamw_torch"],
        ["--full_finetune", "--bits", "16", "--bf16", "--optim", "paged_adamw_32bit"],
        ["--full_finetune", "--bits", "32", "--optim", "adamw_8bit"],
    ],
    ids=" ".join,
)
def test_gradients_and_optimizer_state_are_what_a_step_leaves(folder: Path, flags: list[str]) -> None:
    settings = parse(["--model_name_or_path", str(folder), "--lora_r", "64", *flags])
    parts = make_run_plan(settings, read_shape(CONFIG), Machines(named_device("h200"), 1, 1, 1, 1e9)).parts
    gradients, state = bytes_after_a_step(settings, build_model(settings, CPU))
    assert parts.gradients == gradients
    assert parts.optimizer + parts.paged == pytest.approx(state, rel=0.004)


def kept_by_autograd(model: Any, dtype: torch.dtype) -> int:
    """Bytes of the distinct storages that a forward keeps for backward, the model's own left out."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    tokens = torch.zeros(2, 64, dtype=torch.long)
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", dtype, enabled=dtype is not torch.float32),
    ):
        model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


@pytest.mark.parametrize(
    ("flags", "dtype"),
    [
        (["--bits", "32", "--bf16"], torch.bfloat16),
        (["--full_finetune", "--bits", "32"], torch.float32),
        (["--full_finetune", "--bits", "32", "--bf16"], torch.bfloat16),
        (["--full_finetune", "--bits", "16", "--bf16"], torch.bfloat16),
    ],
)
def test_a_layer_keeps_for_backward_what_plan_says(tmp_path: Path, flags: list[str], dtype: torch.dtype) -> None:
    kept = []
    for layers in (1, 2):
        config = LlamaConfig(**{**CONFIG.to_diff_dict(), "num_hidden_layers": layers})
        path = tmp_path / str(layers)
        LlamaForCausalLM(config).save_pretrained(path)
        make_tokenizer().save_pretrained(path)
        settings = parse(
            ["--model_name_or_path", str(path), "--lora_r", "8", "--gradient_checkpointing", "false", *flags]
        )
        kept.append(kept_by_autograd(build_model(settings, CPU), dtype))
    settings = parse([*flags, "--lora_r", "8", "--gradient_checkpointing", "false", "--source_max_len", "32",
                      "--target_max_len", "32", "--per_device_train_batch_size", "2"])  # fmt: skip
    plan = make_run_plan(settings, read_shape(CONFIG), Machines(named_device("h200"), 1, 1, 1, 1e9))
    assert plan.parts.activations / 2 == pytest.approx(kept[1] - kept[0], rel=0.1)


def test_all_weights_of_7b_take_sixteen_bytes_each_and_are_not_split() -> None:
    shape = read_shape(AutoConfig.for_model("llama", vocab_size=32000, **LLAMA_7B))
    settings = parse(["--full_finetune", "--bits", "32", "--bf16", "--optim", "adamw_torch", "--device_map", "auto"])
    assert precision_of(settings).bits == 32
    assert trained_by(settings, shape).parameters == shape.parameters
    plan = make_run_plan(settings, shape, Machines(named_device("a100-80"), 1, 4, 1, 1e9))
    assert plan.parts.weights + plan.parts.gradients + plan.parts.optimizer == pytest.approx(16 * shape.parameters)
    assert plan.layout.parallelism is Parallelism.NONE
    assert "not split" in plan.layout.why


def test_arithmetic_of_trained_weights_is_a_third_more_than_that_of_frozen_ones() -> None:
    shape = read_shape(AutoConfig.for_model("llama", vocab_size=32000, **LLAMA_7B))
    frozen = flops_per_token(shape, 0, checkpointing=True, tokens=1)
    assert flops_per_token(shape, None, checkpointing=True, tokens=1) == pytest.approx(frozen * 4 / 3, rel=1e-3)
