"""Memory that the planner predicts, against what autograd and the optimizer really keep on a model of the same form."""

from pathlib import Path
from typing import Any

import bitsandbytes as bnb
import pytest
import torch
from clockgate_trainer.flags.modules import choice
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.planner.inventory import read_shape
from clockgate_trainer.planner.memory import GIB, Micro, Precision, Trained, layer_activation_bytes, measure
from clockgate_trainer.planner.memory import weight_bytes as predicted_weight_bytes
from clockgate_trainer.planner.shape import Shape
from clockgate_trainer.train.model import build_model
from support.tiny_model import make_tokenizer
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

EVERY = choice("all")
CPU = torch.device("cpu")
NF4 = Precision(4, double_quant=True, compute_bytes=2)
ROWS, TOKENS = 2, 64
LLAMA_7B = {"num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32}
LLAMA_65B = {"num_hidden_layers": 80, "hidden_size": 8192, "intermediate_size": 22016, "num_attention_heads": 64}


def config_of(layers: int, key_value_heads: int = 4) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=128,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=key_value_heads,
        max_position_embeddings=512,
    )


def model_of(folder: Path, config: LlamaConfig, *flags: str) -> Any:
    logging.disable_progress_bar()
    LlamaForCausalLM(config).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    settings = parse(
        ["--model_name_or_path", str(folder), "--lora_r", "8", "--gradient_checkpointing", "false", *flags]
    )
    return build_model(settings, CPU)


def kept_by_autograd(model: Any, *, bf16: bool) -> int:
    """Bytes of the distinct storages that a forward keeps for backward, the model's own left out."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        # The tensor is kept so that its address is not given to another one.
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    tokens = torch.zeros(ROWS, TOKENS, dtype=torch.long)
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=bf16),
    ):
        logits = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False).logits
    assert logits.shape == (ROWS, TOKENS, 128)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


@pytest.mark.parametrize("key_value_heads", [4, 2])
@pytest.mark.parametrize(("flags", "compute_bytes"), [(("--bf16",), 2), ((), 4)])
def test_layer_activations_are_what_autograd_keeps(
    tmp_path: Path, flags: tuple[str, ...], compute_bytes: int, key_value_heads: int
) -> None:
    kept = [
        kept_by_autograd(model_of(tmp_path / str(layers), config_of(layers, key_value_heads), *flags), bf16=bool(flags))
        for layers in (1, 2)
    ]
    seen = (kept[1] - kept[0]) / (ROWS * TOKENS)
    shape = read_shape(config_of(2, key_value_heads))
    trained = Trained(shape.adapter(8, EVERY), 8, dropout=False, optimizer_bits=32, paged=False)
    predicted = layer_activation_bytes(shape, Precision(4, double_quant=True, compute_bytes=compute_bytes), trained)
    assert predicted == pytest.approx(seen, rel=0.06)


def test_weights_and_adapter_are_what_the_model_holds(tmp_path: Path) -> None:
    model = model_of(tmp_path, config_of(2), "--bf16")
    shape = read_shape(config_of(2))
    adapter = sum(tensor.numel() for name, tensor in model.named_parameters() if "lora_" in name)
    assert shape.adapter(8, EVERY) == adapter
    held = 0
    for module in model.modules():
        if isinstance(module, bnb.nn.Linear4bit):
            state = module.weight.quant_state
            held += module.weight.nbytes + state.absmax.nbytes + state.state2.absmax.nbytes
    others = [tensor for name, tensor in model.named_parameters() if "lora_" not in name and "base_layer" not in name]
    held += sum(tensor.nbytes for tensor in others)
    assert predicted_weight_bytes(shape, NF4) == pytest.approx(held, rel=0.002)


def test_adapter_counts_only_the_modules_that_are_named() -> None:
    shape = read_shape(config_of(2))
    assert shape.adapter(8, choice("q_proj,v_proj")) == 2 * 2 * 8 * (256 + 256)
    assert shape.adapter(8, choice(r".*layers\.1\..*q_proj")) == 8 * (256 + 256)


def test_published_65b_weights_take_33_gib_and_not_sixteen() -> None:
    shape = read_shape(AutoConfig.for_model("llama", vocab_size=32000, **LLAMA_65B))
    assert shape.parameters == pytest.approx(65.3e9, rel=0.001)
    assert NF4.linear_bytes(shape.linear_weights) == pytest.approx(33.4e9, rel=0.01)
    assert predicted_weight_bytes(shape, NF4) / GIB == pytest.approx(32.1, abs=0.1)


def test_double_quantisation_saves_three_eighths_of_a_bit_per_weight() -> None:
    plain, nested = Precision(4, double_quant=False, compute_bytes=2), NF4
    assert 8 * (plain.linear_bytes(10**9) - nested.linear_bytes(10**9)) / 10**9 == pytest.approx(0.373, abs=0.002)


def a_shape() -> Shape:
    return read_shape(config_of(2))


@pytest.mark.parametrize("field", ["activations", "working"])
def test_memory_grows_with_the_tokens_of_a_micro_batch(field: str) -> None:
    trained = Trained(1000, 8, dropout=False, optimizer_bits=32, paged=False)
    one = measure(a_shape(), NF4, trained, Micro(1, 4000), checkpointing=True)
    two = measure(a_shape(), NF4, trained, Micro(2, 4000), checkpointing=True)
    assert getattr(two, field) == pytest.approx(2 * getattr(one, field), rel=0.01)


def test_checkpointing_dropout_and_eight_bit_moments_change_what_they_should() -> None:
    shape, micro = a_shape(), Micro(1, 100)
    plain = Trained(100_000, 8, dropout=False, optimizer_bits=32, paged=False)
    base = measure(shape, NF4, plain, micro, checkpointing=False)
    assert measure(shape, NF4, plain, micro, checkpointing=True).activations < base.activations
    with_dropout = Trained(100_000, 8, dropout=True, optimizer_bits=32, paged=False)
    assert measure(shape, NF4, with_dropout, micro, checkpointing=False).activations > base.activations
    small_moments = measure(
        shape, NF4, Trained(100_000, 8, dropout=False, optimizer_bits=8, paged=False), micro, checkpointing=False
    )
    assert base.optimizer == 800_000
    assert small_moments.optimizer == pytest.approx(203_125)


def test_state_of_a_paged_optimizer_is_told_and_is_no_part_of_the_peak() -> None:
    shape, micro = a_shape(), Micro(1, 100)
    plain = measure(
        shape, NF4, Trained(1000, 8, dropout=False, optimizer_bits=32, paged=False), micro, checkpointing=False
    )
    paged = measure(
        shape, NF4, Trained(1000, 8, dropout=False, optimizer_bits=32, paged=True), micro, checkpointing=False
    )
    assert paged.paged == plain.optimizer == 8000
    assert plain.total - paged.total == 8000


@pytest.mark.parametrize(
    ("dropout", "checkpointing", "measured_gib"),
    # Peak of torch's allocator on an H200: 7B shape, r = 64, 4 x 2048 tokens, paged AdamW; torch 2.11.
    [(False, False, 49.24), (True, False, 67.02), (False, True, 9.28)],
)
def test_prediction_is_within_a_twentieth_of_what_an_h200_needed(
    dropout: bool, checkpointing: bool, measured_gib: float
) -> None:
    shape = read_shape(AutoConfig.for_model("llama", vocab_size=32000, **LLAMA_7B))
    trained = Trained(shape.adapter(64, EVERY), 64, dropout=dropout, optimizer_bits=32, paged=True)
    predicted = measure(shape, NF4, trained, Micro(4, 2048), checkpointing=checkpointing).total / GIB
    assert predicted == pytest.approx(measured_gib, rel=0.05)
