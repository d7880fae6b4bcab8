"""A model of which all weights are trained: on its way to a checkpoint's folder and back."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from clockgate_trainer.checkpoint.background import copied
from clockgate_trainer.checkpoint.digest import digest_tensors
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.train import whole
from clockgate_trainer.train.model import build_model
from clockgate_trainer.train.placement import place_model
from clockgate_trainer.train.trained import trained_tensors
from support.tiny_model import make_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

CPU = torch.device("cpu")


@pytest.fixture(params=[False, True], ids=["untied", "tied"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    logging.disable_progress_bar()
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        tie_word_embeddings=request.param,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path / "base")
    make_tokenizer().save_pretrained(tmp_path / "base")
    whole.tokenizer_of.cache_clear()
    return parse(["--model_name_or_path", str(tmp_path / "base"), "--full_finetune", "--bits", "32"])


def moved(settings: Settings) -> Any:
    """The model after some training."""
    model = build_model(settings, CPU)
    with torch.no_grad():
        for tensor in trained_tensors(model).values():
            tensor.normal_(std=0.1)
    return model


def test_every_weight_is_trained_once(settings: Settings) -> None:
    model = build_model(settings, CPU)
    trained = trained_tensors(model)
    assert sum(tensor.numel() for tensor in trained.values()) == sum(each.numel() for each in model.parameters())
    assert ("lm_head.weight" in trained) is not model.config.tie_word_embeddings
    assert all(tensor.dtype is torch.float32 for tensor in trained.values())


def test_plain_transformers_loads_what_was_saved_in_shards(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "SHARD_BYTES", 40_000)
    model = moved(settings)
    whole.save_whole(settings, model, tmp_path / "saved", None)
    assert len(list((tmp_path / "saved").glob("model-*.safetensors"))) > 1
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert digest_tensors(trained_tensors(plain)) == digest_tensors(trained_tensors(model))
    tokens = torch.tensor([[1, 5, 6, 7]])
    torch.testing.assert_close(plain(tokens).logits, model.eval()(tokens).logits)
    assert AutoTokenizer.from_pretrained(tmp_path / "saved")("abc").input_ids
    again = build_model(settings, CPU)
    whole.load_whole(again, tmp_path / "saved")
    assert digest_tensors(trained_tensors(again)) == digest_tensors(trained_tensors(model))


def test_copies_are_written_in_place_of_weights_that_went_on(settings: Settings, tmp_path: Path) -> None:
    model = moved(settings)
    copies = copied(trained_tensors(model))
    wanted = digest_tensors(copies)
    with torch.no_grad():
        for tensor in trained_tensors(model).values():
            tensor.zero_()
    whole.save_whole(settings, model, tmp_path / "saved", copies)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert digest_tensors(trained_tensors(plain)) == wanted


def test_a_generation_configuration_that_contradicts_itself_loses_no_checkpoint(
    settings: Settings, tmp_path: Path
) -> None:
    file = tmp_path / "base" / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "temperature": 0.9, "top_p": 0.6}), encoding="utf-8")
    model = build_model(settings, CPU)
    whole.save_whole(settings, model, tmp_path / "saved", None)
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "saved").generation_config.temperature == 0.9


def test_layers_on_several_devices_are_refused(settings: Settings) -> None:
    spread = parse(["--full_finetune", "--bits", "32", "--device_map", "{'model': 0, 'lm_head': 1}"])
    cuda = torch.device("cuda", 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "device_count", lambda: 2)
        with pytest.raises(ConfigError, match="--full_finetune trains whole copies"):
            place_model(spread, cuda, 1)
