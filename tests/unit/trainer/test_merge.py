"""Merging an adapter into its base: every kind of adapter, and what must not be written over or taken for whole."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from clockgate_trainer.checkpoint.weights import Weights, find_weights
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.export import merge_command
from clockgate_trainer.export.build import build, compare, prepare
from clockgate_trainer.export.merge_command import main
from clockgate_trainer.export.source import WeightFiles, base_folder, describe
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.train.model import build_model
from clockgate_trainer.train.trained import count_parameters, trained_tensors
from peft import PeftModel
from safetensors.torch import load_file
from support.tiny_model import make_model, make_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

pytestmark = pytest.mark.filterwarnings(
    # peft asks transformers by an old name; and it says that a head is trained beside a shared embedding.
    "ignore:.*is_gradient_checkpointing:FutureWarning",
    "ignore:Model .*tie_word_embeddings:UserWarning",
)
CPU = torch.device("cpu")
TEXTS = ("say 3 aaa", "yes yes yes", "To be, or not to be: that is the question.")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tied")
    config = LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4,
        bos_token_id=1, eos_token_id=2, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(1)
    LlamaForCausalLM(config).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def plain(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter on the base in NF4, which no test changes."""
    folder = tmp_path_factory.mktemp("plain")
    adapter_of(base, folder)
    return folder


def flags_of(base: Path) -> list[str]:
    return ["--model_name_or_path", str(base), "--device", "cpu"]


def adapter_of(base: Path, folder: Path, *flags: str) -> list[str]:
    """Save an adapter with weights that matter; the flags that hold its base."""
    words = [*flags_of(base), "--lora_r", "4", *flags]
    model = build_model(parse(words), CPU)
    torch.manual_seed(7)
    with torch.no_grad():
        for name, tensor in trained_tensors(model).items():
            tensor.add_(torch.randn_like(tensor) * (0.02 if "modules_to_save" in name else 0.1))
    model.save_pretrained(folder, save_embedding_layers=False)
    return words


def merge(adapter: Path, output: Path, words: list[str], *, held: bool = True, shard: str = "5GB") -> float:
    """Merge and compare; the largest difference of a logit."""
    job = prepare(Weights(adapter, is_adapter=True), parse(words), held=held, dtype=None)
    output.mkdir()
    build(job, output, max_shard_size=shard, on_progress=lambda done, all_: None)
    return compare(job, output, TEXTS).largest


@pytest.mark.parametrize(
    "flags",
    [
        ("--use_dora",),
        ("--use_rslora", "--quant_type", "fp4", "--no_double_quant", "--lora_modules", "q_proj,v_proj"),
        ("--modules_to_save", "lm_head,embed_tokens"),
    ],
    ids=" ".join,
)
def test_merged_model_says_what_the_adapter_on_its_base_says(
    base: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    words = adapter_of(base, tmp_path / "adapter", *flags)
    assert merge(tmp_path / "adapter", tmp_path / "merged", words) < 2e-5
    assert merge_moves_the_base(base, tmp_path / "merged")


def merge_moves_the_base(base: Path, merged: Path) -> bool:
    tokens = torch.tensor([[1, 5, 6, 7]])
    one, other = (AutoModelForCausalLM.from_pretrained(folder)(tokens).logits.detach() for folder in (base, merged))
    return bool((one - other).abs().max() > 0.05)


def test_eight_bit_base_is_dequantised_too(base: Path, tmp_path: Path) -> None:
    words = adapter_of(base, tmp_path / "adapter", "--bits", "8")
    # LLM.int8 rounds activations as well, which no weight can hold.
    held = merge(tmp_path / "adapter", tmp_path / "held", words)
    full = merge(tmp_path / "adapter", tmp_path / "full", words, held=False)
    assert held < full


def test_full_base_is_further_from_training_than_the_dequantised_one(base: Path, plain: Path, tmp_path: Path) -> None:
    held = merge(plain, tmp_path / "held", flags_of(base))
    assert held < 2e-5
    assert held * 100 < merge(plain, tmp_path / "full", flags_of(base), held=False)
    weights = load_file(tmp_path / "full" / "model.safetensors")
    untouched = load_file(base / "model.safetensors")
    assert torch.equal(weights["model.embed_tokens.weight"], untouched["model.embed_tokens.weight"])


@pytest.mark.parametrize("modules", ["lm_head", "embed_tokens"])
def test_head_that_no_longer_shares_the_embedding_gets_a_weight_of_its_own(
    tied: Path, tmp_path: Path, modules: str
) -> None:
    words = adapter_of(tied, tmp_path / "adapter", "--modules_to_save", modules)
    assert merge(tmp_path / "adapter", tmp_path / "merged", words) < 2e-5
    config = json.loads((tmp_path / "merged" / "config.json").read_text(encoding="utf-8"))
    assert config["tie_word_embeddings"] is False


def test_tied_embedding_stays_tied_when_the_adapter_leaves_it_alone(tied: Path, tmp_path: Path) -> None:
    words = adapter_of(tied, tmp_path / "adapter")
    assert merge(tmp_path / "adapter", tmp_path / "merged", words) < 2e-5
    assert "lm_head.weight" not in load_file(tmp_path / "merged" / "model.safetensors")


def test_added_tokens_of_plain_peft_are_in_the_merged_model(base: Path, plain: Path, tmp_path: Path) -> None:
    """An adapter beside an embedding that was resized for a pad token: the usual size mismatch."""
    grown = AutoModelForCausalLM.from_pretrained(base)
    grown.resize_token_embeddings(131)
    model: Any = PeftModel.from_pretrained(grown, plain)
    model.save_pretrained(tmp_path / "grown", save_embedding_layers=True)
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    tokenizer.save_pretrained(tmp_path / "grown")
    assert merge(tmp_path / "grown", tmp_path / "merged", flags_of(base)) < 2e-5
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert merged.get_input_embeddings().num_embeddings == merged.config.vocab_size == 131
    assert AutoTokenizer.from_pretrained(tmp_path / "merged").pad_token == "<pad>"


def test_shards_are_no_larger_than_asked_and_hold_the_same_weights(base: Path, plain: Path, tmp_path: Path) -> None:
    for name, size in (("one", "5GB"), ("many", "100KB")):
        job = prepare(Weights(plain, is_adapter=True), parse(flags_of(base)), held=True, dtype=None)
        (tmp_path / name).mkdir()
        build(job, tmp_path / name, max_shard_size=size, on_progress=lambda done, all_: None)
    shards = sorted((tmp_path / "many").glob("model-*.safetensors"))
    assert len(shards) > 2
    assert all(path.stat().st_size < 110_000 for path in shards)
    together = {name: weight for path in shards for name, weight in load_file(path).items()}
    whole = load_file(tmp_path / "one" / "model.safetensors")
    assert whole.keys() == together.keys()
    assert all(torch.equal(weight, together[name]) for name, weight in whole.items())


def test_what_is_quantised_is_what_training_quantises(base: Path) -> None:
    words = ["--model_name_or_path", str(base), "--device", "cpu"]
    settings = parse(words)
    _, facts = describe(settings, base_folder(settings), WeightFiles(base))
    held = {
        name for name, module in build_model(settings, CPU).named_modules() if "Linear4bit" in type(module).__name__
    }
    inner = {name.removeprefix("base_model.model.").removesuffix(".base_layer") for name in held}
    assert facts.quantised == inner


def test_weights_of_torch_save_are_read_too(base: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(base, old)
    torch.save(load_file(old / "model.safetensors"), old / "pytorch_model.bin")
    (old / "model.safetensors").unlink()
    files, new = WeightFiles(old), WeightFiles(base)
    assert files.names == new.names
    assert all(torch.equal(files.load(name), new.load(name)) for name in files.names)
    assert all(files.look(name) == new.look(name) for name in files.names)


def test_an_adapter_of_another_base_is_refused_by_name(plain: Path, tied: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.layers\.1\.\S+ .*is it the base that the adapter was trained on"):
        merge(plain, tmp_path / "merged", flags_of(tied))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"peft_type": "IA3"}, "type IA3"),
        ({"init_lora_weights": "pissa_niter_4"}, "pissa"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
    ],
)
def test_adapters_that_mean_more_are_refused_with_the_reason(
    base: Path, plain: Path, tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    shutil.copytree(plain, tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}), encoding="utf-8")
    with pytest.raises(ConfigError, match=named):
        merge(tmp_path / "adapter", tmp_path / "merged", flags_of(base))


def test_command_reports_and_writes_over_nothing(
    base: Path, plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "merged"
    output.mkdir()
    line = [str(plain), "--output", str(output), "--json", *flags_of(base)]
    assert main([*line, "--dtype", "bfloat16", "--max_logit_diff", "1e-9"]) == 1
    assert "nothing was written" in capsys.readouterr().err
    assert not list(output.iterdir())
    assert not list(tmp_path.glob(".staging*"))
    assert main([*line, "--dtype", "bfloat16", "--max_logit_diff", "0.1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert 0 < told["logits"]["mean"] < told["logits"]["largest"] < 0.1
    assert AutoModelForCausalLM.from_pretrained(output, dtype="auto").dtype is torch.bfloat16
    assert main(line) == 78
    assert "not empty" in capsys.readouterr().err


@pytest.mark.parametrize("limit", ["nan", "-1"])
def test_a_limit_that_no_logit_can_keep_is_refused_before_anything_is_merged(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], limit: str
) -> None:
    assert main([str(plain), "--output", str(tmp_path / "merged"), f"--max_logit_diff={limit}"]) == 2
    assert "--max_logit_diff is" in capsys.readouterr().err


@pytest.mark.parametrize("torn", ["model.safetensors", "pytorch_model.bin"])
def test_a_torn_file_of_the_base_is_named_and_not_the_output(
    base: Path, plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], torn: str
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(base, broken)
    names = load_file(base / "model.safetensors")
    (broken / "model.safetensors").unlink()
    (broken / torn).write_bytes(b"torn")
    index = {"weight_map": dict.fromkeys(names, torn)}
    (broken / f"{torn}.index.json").write_text(json.dumps(index), encoding="utf-8")
    assert main([str(plain), "--output", str(tmp_path / "merged"), *flags_of(broken)]) == 78
    told = capsys.readouterr().err
    assert f"{broken / torn}" in told
    assert "--model_name_or_path" in told
    assert not list(tmp_path.glob(".staging*"))


def test_a_merge_that_is_told_to_end_leaves_nothing_behind(
    base: Path, plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_command, "_progress", lambda done, every: os.kill(os.getpid(), signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    assert main([str(plain), "--output", str(tmp_path / "merged"), *flags_of(base)]) == 130
    assert "nothing was written" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before


def test_empty_adapter_is_told(base: Path, plain: Path, tmp_path: Path) -> None:
    shutil.copytree(plain, tmp_path / "adapter")
    header = b"{}"
    (tmp_path / "adapter" / "adapter_model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ConfigError, match="saved empty"):
        merge(tmp_path / "adapter", tmp_path / "merged", flags_of(base))


def test_a_name_that_is_no_text_is_refused_before_anything_is_merged(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(plain), "--output", f"{tmp_path}/\udcff"]) == 78
    assert "is no UTF-8" in capsys.readouterr().err


def test_broken_checkpoints_that_are_passed_over_are_told() -> None:
    weights = Weights(Path("run/checkpoint-2"), is_adapter=True, note="chosen", passed_over=(Path("run/checkpoint-4"),))
    assert weights.notes == ("chosen", "run/checkpoint-4 is passed over: it is not as it was written")


def test_folder_without_weights_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no checkpoint"):
        find_weights(tmp_path)
    with pytest.raises(ConfigError, match=r"no such folder"):
        find_weights(tmp_path / "no")


@pytest.mark.parametrize("bits", ["4", "8", "32"])
def test_parameters_are_counted_and_not_the_bytes_that_hold_them(base: Path, bits: str) -> None:
    model = build_model(parse(["--model_name_or_path", str(base), "--lora_r", "4", "--bits", bits]), CPU)
    whole = sum(weight.numel() for weight in load_file(base / "model.safetensors").values())
    adapter = sum(tensor.numel() for tensor in trained_tensors(model).values())
    assert count_parameters(model) == (adapter, whole + adapter)
