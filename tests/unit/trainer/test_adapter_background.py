"""An adapter of peft that is saved from a copy of its weights, by a thread, is the one that peft saves itself."""

import threading
from pathlib import Path

import torch
from clockgate_trainer.checkpoint.background import copied
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.train.model import build_model
from clockgate_trainer.train.trained import trained_tensors
from safetensors.torch import load_file
from support.tiny_model import make_model

CPU = torch.device("cpu")
FILE = "adapter_model.safetensors"


def test_a_copy_of_the_weights_is_saved_as_peft_saves_them_and_not_what_they_are_by_then(tmp_path: Path) -> None:
    settings = parse(["--model_name_or_path", str(make_model(tmp_path / "base")), "--lora_r", "4"])
    model = build_model(settings, CPU)
    tensors = trained_tensors(model)
    with torch.no_grad():
        for tensor in tensors.values():
            tensor.normal_()
    model.save_pretrained(tmp_path / "now", save_embedding_layers=False)
    copy = copied(tensors)
    with torch.no_grad():
        for tensor in tensors.values():
            tensor.zero_()
    arguments = {"save_embedding_layers": False, "state_dict": copy}
    thread = threading.Thread(target=model.save_pretrained, args=(tmp_path / "later",), kwargs=arguments)
    thread.start()
    thread.join(30)
    now, later = (load_file(tmp_path / name / FILE) for name in ("now", "later"))
    assert sorted(now) == sorted(later)
    for name, tensor in now.items():
        assert torch.equal(tensor, later[name]), name
    assert sorted(path.name for path in (tmp_path / "now").iterdir()) == sorted(
        path.name for path in (tmp_path / "later").iterdir()
    )
