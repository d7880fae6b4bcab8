"""The 4-bit base with its adapter, and the adapter as plain peft sees it."""

from pathlib import Path
from typing import Any

import bitsandbytes as bnb
import pytest
import torch
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.train.model import adapted_modules, build_model
from clockgate_trainer.train.optim import make_optimizer, make_scheduler
from clockgate_trainer.train.trained import trained_tensors
from peft import PeftModel
from support.tiny_model import make_model
from transformers import AutoModelForCausalLM

CPU = torch.device("cpu")
LINEAR = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("base"))


def settings_for(folder: Path, *flags: str) -> Settings:
    return parse(["--model_name_or_path", str(folder), "--lora_r", "4", *flags])


def base_layers(model: Any) -> list[Any]:
    return [module.base_layer for module in model.modules() if hasattr(module, "base_layer")]


def test_base_is_nf4_with_double_quantisation_and_the_head_has_no_adapter(folder: Path) -> None:
    model = build_model(settings_for(folder), CPU)
    layers = base_layers(model)
    assert len(layers) == 2 * len(LINEAR)
    assert all(isinstance(layer, bnb.nn.Linear4bit) for layer in layers)
    assert all(layer.weight.quant_state.quant_type == "nf4" and layer.weight.quant_state.nested for layer in layers)
    assert not hasattr(model.get_output_embeddings(), "base_layer")


def test_flags_choose_the_other_four_bit_type(folder: Path) -> None:
    layers = base_layers(build_model(settings_for(folder, "--quant_type", "fp4", "--no_double_quant"), CPU))
    assert all(layer.weight.quant_state.quant_type == "fp4" for layer in layers)
    assert not any(layer.weight.quant_state.nested for layer in layers)


def test_only_the_adapter_is_trained_and_it_is_float32(folder: Path) -> None:
    model = build_model(settings_for(folder, "--bf16"), CPU)
    trained = trained_tensors(model)
    assert len(trained) == 2 * 2 * len(LINEAR)
    assert all("lora_" in name and tensor.dtype is torch.float32 for name, tensor in trained.items())
    norms = [module for module in model.modules() if "norm" in type(module).__name__.lower()]
    assert norms
    assert all(norm.weight.dtype is torch.float32 for norm in norms)
    assert model.get_input_embeddings().weight.dtype is torch.bfloat16


def test_adapter_starts_from_the_seed_alone(folder: Path) -> None:
    torch.manual_seed(1)
    one = trained_tensors(build_model(settings_for(folder, "--seed", "3"), CPU))
    torch.manual_seed(2)
    same = trained_tensors(build_model(settings_for(folder, "--seed", "3"), CPU))
    other = trained_tensors(build_model(settings_for(folder, "--seed", "4"), CPU))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_lora_modules_choose_layers_and_unknown_ones_are_refused_by_name(folder: Path) -> None:
    base = AutoModelForCausalLM.from_pretrained(folder)
    assert set(adapted_modules(base, "all")) == LINEAR
    assert adapted_modules(base, "v_proj, q_proj") == ["q_proj", "v_proj"]
    assert adapted_modules(base, r".*layers\.0\..*_proj") == r".*layers\.0\..*_proj"
    with pytest.raises(ConfigError, match=r"fits none of the model's linear layers"):
        adapted_modules(base, "q_.*")
    with pytest.raises(ConfigError, match=r"q_prj.*the model's linear layers are down_proj"):
        adapted_modules(base, "q_prj")


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft asks by transformers' old name
def test_saved_adapter_loads_in_plain_peft_and_gives_the_same_logits(folder: Path, tmp_path: Path) -> None:
    model = build_model(settings_for(folder, "--bits", "32"), CPU)
    with torch.no_grad():
        for tensor in trained_tensors(model).values():
            tensor.normal_(std=0.1)
    model.save_pretrained(tmp_path, save_embedding_layers=False)
    plain = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), tmp_path)
    tokens = torch.tensor([[1, 5, 6, 7]])
    torch.testing.assert_close(plain.eval()(tokens).logits, model.eval()(tokens).logits)


def test_a_pattern_adapts_the_layers_that_it_fits_alone(folder: Path) -> None:
    model = build_model(settings_for(folder, "--lora_modules", r".*layers\.1\.self_attn\.[qv]_proj"), CPU)
    names = [name for name, module in model.named_modules() if hasattr(module, "base_layer")]
    assert [name.partition("layers.")[2] for name in names] == ["1.self_attn.q_proj", "1.self_attn.v_proj"]


def test_modules_to_save_are_trained_whole_in_float32(folder: Path) -> None:
    trained = trained_tensors(build_model(settings_for(folder, "--bf16", "--modules_to_save", "lm_head"), CPU))
    heads = [tensor for name, tensor in trained.items() if "lm_head" in name]
    assert [tuple(tensor.shape) for tensor in heads] == [(128, 64)]
    assert heads[0].dtype is torch.float32
    with pytest.raises(ConfigError, match=r"--modules_to_save names lm_hed"):
        build_model(settings_for(folder, "--modules_to_save", "lm_hed"), CPU)


@pytest.mark.parametrize(("flag", "scale"), [("--use_rslora", 16 / 4**0.5), ("--use_dora", 16 / 4)])
def test_kinds_of_lora_follow_their_flags(folder: Path, flag: str, scale: float) -> None:
    model = build_model(settings_for(folder, flag), CPU)
    layer = next(module for module in model.modules() if hasattr(module, "base_layer"))
    assert layer.scaling["default"] == scale
    assert bool(layer.use_dora["default"]) is (flag == "--use_dora")


def test_a_run_starts_from_an_adapter_that_fits_and_refuses_another(folder: Path, tmp_path: Path) -> None:
    old = build_model(settings_for(folder, "--seed", "5"), CPU)
    old.save_pretrained(tmp_path, save_embedding_layers=False)
    new = trained_tensors(build_model(settings_for(folder, "--init_adapter", str(tmp_path)), CPU))
    assert all(torch.equal(tensor, new[name]) for name, tensor in trained_tensors(old).items())
    for flags in (["--lora_r", "8"], ["--lora_modules", "q_proj"]):
        with pytest.raises(ConfigError, match=rf"--init_adapter {tmp_path}"):
            build_model(settings_for(folder, "--init_adapter", str(tmp_path), *flags), CPU)


@pytest.mark.parametrize("name", ["paged_adamw_32bit", "paged_adamw_8bit", "adamw_8bit", "adamw_torch"])
def test_every_optimizer_takes_a_step_on_cpu(folder: Path, name: str) -> None:
    weight = torch.nn.Parameter(torch.ones(8192))
    settings = settings_for(folder, "--optim", name, "--learning_rate", "0.01", "--weight_decay", "0.1")
    optimizer = make_optimizer(settings, [weight], CPU)
    weight.grad = torch.ones(8192)
    optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.full((8192,), 0.989), rtol=0, atol=2e-4)


@pytest.mark.parametrize(
    ("flags", "rates"),
    [
        (["constant"], [1.0, 1.0, 1.0, 1.0]),
        (["constant_with_warmup", "--warmup_steps", "2"], [0.0, 0.5, 1.0, 1.0]),
        (["linear", "--warmup_ratio", "0"], [1.0, 0.75, 0.5, 0.25]),
        (["cosine", "--warmup_ratio", "0.2"], [0.0, 1.0, 0.75, 0.25]),
    ],
)
def test_schedule_follows_its_flags(folder: Path, flags: list[str], rates: list[float]) -> None:
    settings = settings_for(folder, "--learning_rate", "1", "--optim", "adamw_torch", "--lr_scheduler_type", *flags)
    optimizer = make_optimizer(settings, [torch.nn.Parameter(torch.ones(1))], CPU)
    scheduler = make_scheduler(settings, optimizer, 4)
    seen = []
    for _ in rates:
        seen.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    assert seen == pytest.approx(rates)
