"""Which number types and optimizers a command line may ask for, and what is said of them."""

import pytest
import torch
from clockgate_trainer.errors import UsageError
from clockgate_trainer.flags.optimizers import OPTIMIZERS, REFUSED_OPTIMIZERS
from clockgate_trainer.flags.parse import notices, parse, read_command_line
from clockgate_trainer.train.precision import compute_dtype, held_dtype
from transformers.training_args import OptimizerNames

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


@pytest.mark.parametrize(
    ("flags", "compute", "held"),
    [
        ("", FP32, FP32),
        ("--bf16", BF16, BF16),
        ("--fp16", FP16, FP16),
        ("--bits 8 --fp16", FP16, FP16),
        ("--bits 16", FP32, FP32),
        ("--bits 16 --bf16", BF16, BF16),
        ("--bits 32 --bf16", BF16, FP32),
        ("--bits 32 --fp16 --full_finetune", FP16, FP32),
        ("--bits 16 --bf16 --full_finetune", BF16, BF16),
        ("--torch_dtype float16", FP16, FP16),
    ],
)
def test_number_types_follow_the_flags(flags: str, compute: torch.dtype, held: torch.dtype) -> None:
    settings = parse(flags.split())
    assert (compute_dtype(settings), held_dtype(settings)) == (compute, held)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("--full_finetune", "--bits 4: a quantised weight has no gradient. Give --bits 32"),
        ("--full_finetune --bits 8", "--bits 8: a quantised weight has no gradient"),
        ("--full_finetune --bits 16 --fp16", "cannot be unscaled without overflow. Give --bits 32"),
        ("--full_finetune --bits 32 --use_dora", "--use_dora is about an adapter"),
        ("--full_finetune --bits 32 --init_adapter x", "--init_adapter is about an adapter"),
        ("--bf16 --fp16", "both given"),
        ("--optim sgd", "--optim sgd is not supported: the --adam_ flags"),
        ("--optim adamw", "wanted one of paged_adamw_32bit"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(flags: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(flags.split())
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--fp16", "about 80 % of 7B runs"),
        ("--bits 16", "holds weights in float32"),
        ("--full_finetune --bits 16 --bf16", "without float32 copies"),
        ("--full_finetune --bits 32", "the --lora_ flags have no effect"),
    ],
)
def test_what_a_person_should_know_is_said(flags: str, said: str) -> None:
    assert any(said in text for text in notices(parse(flags.split())))


def test_every_optimizer_of_transformers_is_honoured_or_refused_with_a_reason() -> None:
    names = {name.value for name in OptimizerNames}
    assert names <= set(OPTIMIZERS) | set(REFUSED_OPTIMIZERS)
    assert not set(OPTIMIZERS) & set(REFUSED_OPTIMIZERS)
    assert all(REFUSED_OPTIMIZERS.values())


def test_the_flag_that_qlora_py_never_read_means_what_it_says() -> None:
    line = read_command_line(["--adam8bit", "--bf16"])
    assert line.settings.optim == "adamw_8bit"
    assert any("--adam8bit is read as" in text for text in line.notices)
    assert read_command_line(["--adam8bit", "false"]).settings.optim == "paged_adamw_32bit"
