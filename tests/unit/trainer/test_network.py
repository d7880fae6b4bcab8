"""The arithmetic of a step: what one big batch gives, small ones must give too."""

from collections.abc import Sequence

import pytest
import torch
from clockgate_trainer.data.collate import collate
from clockgate_trainer.data.tokens import TokenRow
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.train.distributed import Place
from clockgate_trainer.train.model import build_model
from clockgate_trainer.train.network import Network
from support.tiny_model import make_model

CPU = torch.device("cpu")
ROWS = (
    TokenRow.after((1, 5, 6, 7, 2), 2),
    TokenRow.after((1, 9, 2), 2),
    TokenRow.after((1, 8, 8, 8, 8, 8, 4, 4, 2), 3),
)
LABELS = sum(row.label_tokens for row in ROWS)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    folder = make_model(tmp_path_factory.mktemp("network"))
    settings = parse(["--model_name_or_path", str(folder), "--bits", "32", "--lora_r", "4"])
    return Network(build_model(settings, CPU), Place(0, 1, 0, 1), CPU, compute=torch.float32)


def gradients(network: Network, micro_batches: Sequence[Sequence[TokenRow | None]], pad_id: int = 2) -> torch.Tensor:
    network.drop_gradients()
    for rows in micro_batches:
        network.backward(network.loss_sum(collate(rows, pad_id)), LABELS)
    return torch.cat([parameter.grad.flatten() for parameter in network.parameters if parameter.grad is not None])


def test_accumulated_micro_batches_give_the_gradient_of_one_batch(network: Network) -> None:
    whole = gradients(network, [ROWS])
    assert whole.abs().max() > 0
    torch.testing.assert_close(gradients(network, [[row] for row in ROWS]), whole)


def test_padding_rows_change_no_gradient(network: Network) -> None:
    torch.testing.assert_close(gradients(network, [[*ROWS, None], [None, None]]), gradients(network, [ROWS]))


def test_id_to_pad_with_does_not_matter(network: Network) -> None:
    torch.testing.assert_close(gradients(network, [ROWS], pad_id=0), gradients(network, [ROWS], pad_id=2))


def test_batch_of_padding_alone_has_loss_and_gradient_zero(network: Network) -> None:
    network.drop_gradients()
    loss = network.loss_sum(collate([None], 2))
    network.backward(loss, LABELS)
    assert loss.item() == 0
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in network.parameters)


def test_loss_is_the_sum_over_answer_tokens(network: Network) -> None:
    row = ROWS[0]
    logits = network.model(input_ids=torch.tensor([row.input_ids.tolist()])).logits[0].float().log_softmax(-1)
    wanted = -sum(logits[place - 1, int(row.input_ids[place])] for place in row.learned.nonzero()[0].tolist())
    torch.testing.assert_close(network.loss_sum(collate([row], 2)), torch.as_tensor(wanted))


def test_clip_tells_the_norm_before_and_none_is_the_limit_at_zero(network: Network) -> None:
    before = gradients(network, [ROWS])
    norm = float(network.clip(0.0))
    assert norm == pytest.approx(before.norm().item())
    assert float(network.clip(norm / 2)) == pytest.approx(norm)
    assert float(network.clip(0.0)) == pytest.approx(norm / 2, rel=1e-4)


def test_total_adds_up_without_rounding_to_single_precision(network: Network) -> None:
    assert network.total([torch.tensor(2.0**24), torch.tensor(1.0)]) == 2.0**24 + 1
