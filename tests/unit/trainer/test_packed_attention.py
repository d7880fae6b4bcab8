"""Packed and unpacked training see the same: losses and gradients of the same samples are equal."""

from pathlib import Path

import pytest
import torch
from clockgate_trainer.data.collate import Batch, collate, collate_packed
from clockgate_trainer.data.tokens import TokenRow
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.train.attention import VARLEN, check_packing, inputs_of
from clockgate_trainer.train.distributed import Place
from clockgate_trainer.train.model import build_model
from clockgate_trainer.train.network import Network
from support.tiny_model import make_model
from transformers import LlamaConfig, MistralConfig, Qwen2Config

CPU = torch.device("cpu")
ROWS = [TokenRow.after((1, *range(20, 24 + row), 2), 2) for row in range(5)]
LABELS = sum(row.label_tokens for row in ROWS)
PACKED = [[ROWS[4], ROWS[0]], [ROWS[1], ROWS[2], ROWS[3]]]


@pytest.fixture(scope="module", params=["sdpa", "eager"])
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Network:
    folder = make_model(tmp_path_factory.mktemp("packed"))
    settings = parse(["--model_name_or_path", str(folder), "--lora_r", "4"])
    model = build_model(settings, CPU)
    model.base_model.model.set_attn_implementation(request.param)
    # An adapter begins at zero; from there its gradient would say little.
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(1))
    return Network(model, Place(0, 1, 0, 1), CPU, compute=torch.float32)


def run(network: Network, batches: list[Batch]) -> tuple[float, torch.Tensor]:
    network.drop_gradients()
    losses = [network.loss_sum(batch) for batch in batches]
    for loss in losses:
        network.backward(loss, LABELS)
    gradients = [parameter.grad.flatten() for parameter in network.parameters if parameter.grad is not None]
    return sum(float(loss.detach()) for loss in losses), torch.cat(gradients)


def test_packed_rows_give_the_loss_and_the_gradients_of_their_samples(network: Network) -> None:
    loss, gradients = run(network, [collate([row], 2) for row in ROWS])
    packed_loss, packed_gradients = run(network, [collate_packed([*PACKED, None], 2, 24)])
    assert packed_loss == pytest.approx(loss, rel=1e-5)
    torch.testing.assert_close(packed_gradients, gradients, rtol=1e-3, atol=1e-6)


def test_neighbour_in_a_packed_row_changes_nothing(network: Network) -> None:
    alone = float(network.loss_sum(collate_packed([[ROWS[0]]], 2, 24)).detach())
    for other in ROWS[1:4]:
        with_other = float(network.loss_sum(collate_packed([[other, ROWS[0]]], 2, 24)).detach())
        of_other = float(network.loss_sum(collate_packed([[other]], 2, 24)).detach())
        assert with_other - of_other == pytest.approx(alone, rel=1e-4)


def test_packed_padding_row_has_no_loss_and_a_gradient_of_zero(network: Network) -> None:
    loss, gradients = run(network, [collate_packed([None], 2, 24)])
    assert loss == 0.0
    assert gradients.eq(0).all()


def test_kernels_of_variable_length_are_told_where_samples_begin() -> None:
    class Model:
        class config:  # noqa: N801 (named as models name it)
            _attn_implementation = VARLEN

    told = inputs_of(collate_packed(PACKED, 2, 24), Model())
    assert told["attention_mask"] is None
    assert told["cu_seq_lens_q"].tolist() == [0, 10, 16, 24, 31, 39, 48]
    assert told["max_length_q"] == 24
    assert told["position_ids"].shape == (2, 24)


def test_model_that_attends_to_less_than_all_before_is_refused() -> None:
    check_packing(LlamaConfig())
    check_packing(Qwen2Config(use_sliding_window=False, sliding_window=64))
    with pytest.raises(ConfigError, match="sliding_window"):
        check_packing(MistralConfig(sliding_window=64))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("checkpointing", ["true", "false"])
def test_kernels_of_variable_length_give_the_loss_and_gradients_of_unpacked_samples(
    tmp_path: Path, checkpointing: str
) -> None:
    device = torch.device("cuda")
    base = [
        "--model_name_or_path", str(make_model(tmp_path)), "--bits", "16", "--bf16", "--lora_r", "4",
        "--gradient_checkpointing", checkpointing,
    ]  # fmt: skip
    models = [build_model(parse([*base, *more]), device) for more in ([], ["--packing"])]
    plain, packing = (Network(model, Place(0, 1, 0, 1), device, compute=torch.bfloat16) for model in models)
    assert models[1].config._attn_implementation == VARLEN
    loss, gradients = run(plain, [collate([row], 2) for row in ROWS])
    packed_loss, packed_gradients = run(packing, [collate_packed([*PACKED, None], 2, 24)])
    assert packed_loss == pytest.approx(loss, rel=1e-2)
    assert torch.cosine_similarity(packed_gradients, gradients, dim=0) > 0.99
    alone = float(packing.loss_sum(collate_packed([[ROWS[0]]], 2, 24)).detach())
    other = [
        float(packing.loss_sum(collate_packed([rows], 2, 24)).detach()) for rows in ([ROWS[3]], [ROWS[3], ROWS[0]])
    ]
    assert other[1] - other[0] == pytest.approx(alone, rel=1e-2)
