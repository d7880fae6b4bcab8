"""What evaluation computes with a real model, beside plain arithmetic over all its logits."""

import warnings
import weakref
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from clockgate_trainer.data.collate import collate
from clockgate_trainer.data.feed import Arrangement, Feed
from clockgate_trainer.data.packing import pack
from clockgate_trainer.data.tokens import TokenRow, token_data
from clockgate_trainer.evaluation.questions import Questions
from clockgate_trainer.evaluation.rounds import form_batches
from clockgate_trainer.train.attention import VARLEN, inputs_of
from clockgate_trainer.train.exam import HeldOut, MultipleChoice
from clockgate_trainer.train.scorer import Scorer
from peft import LoraConfig, get_peft_model
from support.tiny_model import make_model
from transformers import AutoModelForCausalLM

CPU = torch.device("cpu")
WIDTH = 24
ROWS = [TokenRow.after([1 + (n * 7 + place) % 90 for place in range(4 + n % 9)], masked=2) for n in range(13)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    base = AutoModelForCausalLM.from_pretrained(make_model(tmp_path_factory.mktemp("model")))
    torch.manual_seed(0)
    with warnings.catch_warnings():
        # peft asks transformers 5.24 under an old name.
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        adapted = get_peft_model(
            base, LoraConfig(r=4, lora_dropout=0.5, init_lora_weights=False, target_modules="all-linear")
        )
    enable = getattr(base, "activation_checkpointing_enable", None) or base.gradient_checkpointing_enable
    enable({"use_reentrant": False})
    adapted.train()
    return adapted


@pytest.fixture
def scorer(model: Any) -> Scorer:
    return Scorer(model, CPU, compute=torch.float32)


def held_out(size: int, *, packed: bool = False, rows: Sequence[TokenRow] = ROWS) -> HeldOut:
    data = token_data(rows)
    lengths = data.lengths.tolist()
    feed = Feed(data, 0, Arrangement(seed=0, pack_length=WIDTH if packed else None))
    places = pack(range(len(data)), lengths, WIDTH) if packed else [(row,) for row in range(len(data))]
    return HeldOut(feed, form_batches(places, lengths, size))


def evaluate(task: HeldOut | MultipleChoice, scorer: Scorer) -> dict[str, float]:
    with scorer.evaluating():
        return task.sum_up([mark for rows in task.batches for mark in task.mark(scorer, rows)])


def plain_logits(model: Any, row: TokenRow) -> torch.Tensor:
    """The logits behind each token of one row, without dropout, by a forward of its own."""
    model.eval()
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=torch.tensor(row.input_ids.astype(int))[None]).logits[0]
    model.train()
    return logits


def test_the_loss_is_that_of_every_row_alone_by_label_token(model: Any, scorer: Scorer) -> None:
    summed, tokens = 0.0, 0
    for row in ROWS:
        ids = row.input_ids.tolist()
        chances = plain_logits(model, row).double().log_softmax(-1)
        for place in range(1, len(ids)):
            if row.learned[place]:
                summed -= float(chances[place - 1, ids[place]])
                tokens += 1
    found = evaluate(held_out(4), scorer)
    assert found["eval_tokens"] == tokens
    assert found["eval_rows"] == len(ROWS)
    assert found["eval_loss"] == pytest.approx(summed / tokens, rel=1e-5)


def test_packed_rows_have_the_loss_of_unpacked_ones(scorer: Scorer) -> None:
    packed = evaluate(held_out(2, packed=True), scorer)
    assert packed["eval_loss"] == pytest.approx(evaluate(held_out(3), scorer)["eval_loss"], rel=1e-5)
    assert packed["eval_rows"] == len(ROWS)


def test_a_loss_that_is_no_number_is_told_as_it_is() -> None:
    assert str(held_out(4).sum_up([1.0, float("nan"), float("inf")])["eval_loss"]) == "nan"


def test_the_model_is_as_it_was_and_no_random_number_is_drawn(model: Any, scorer: Scorer) -> None:
    before = {name: module.training for name, module in model.named_modules()}
    weights = {name: tensor.clone() for name, tensor in model.named_parameters()}
    state = torch.get_rng_state()
    evaluate(held_out(4), scorer)
    assert {name: module.training for name, module in model.named_modules()} == before
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()
    assert all(tensor.grad is None for tensor in model.parameters())
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.named_parameters())


class Counted(torch.nn.Module):
    """Gives logits of `vocabulary` numbers a token, and counts how many of its results are still there."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.alive: list[int] = []
        self._given: list[weakref.ref[torch.Tensor]] = []

    def forward(self, *, input_ids: torch.Tensor, attention_mask: torch.Tensor, use_cache: bool) -> Any:
        self.alive.append(sum(given() is not None for given in self._given))
        logits = torch.zeros(*input_ids.shape, self.vocabulary)
        self._given.append(weakref.ref(logits))
        return SimpleNamespace(logits=logits)


def test_no_logits_outlive_their_batch_however_many_rows_there_are() -> None:
    # 500 rows x 3 tokens x 50,000 numbers would be 300 MB.
    rows = [TokenRow.after([1] * 3, masked=1) for _ in range(500)]
    model = Counted(50_000)
    found = evaluate(held_out(8, rows=rows), Scorer(model, CPU, compute=torch.float32))
    assert len(model.alive) == 63
    assert set(model.alive) == {0}
    assert found["eval_loss"] == pytest.approx(torch.log(torch.tensor(50_000.0)).item(), rel=1e-5)


def questions(letters: tuple[int, ...] = (40, 41, 42, 43)) -> Questions:
    rows = tuple(TokenRow.after(row.input_ids.tolist(), masked=99) for row in ROWS)
    answers = tuple(n % 4 for n in range(len(rows)))
    return Questions("eval", rows, answers, ("s",) * len(rows), letters, 0)


def multiple_choice(size: int, asked: Questions) -> MultipleChoice:
    data = token_data(asked.rows)
    rows = [(row,) for row in range(len(data))]
    return MultipleChoice(asked, Feed(data, 0, Arrangement(seed=0)), form_batches(rows, data.lengths.tolist(), size))


@pytest.mark.parametrize("size", [1, 4, 8])
def test_the_answer_is_the_likeliest_of_four_tokens_behind_the_question(model: Any, scorer: Scorer, size: int) -> None:
    asked = questions()
    last = [plain_logits(model, row)[-1] for row in asked.rows]
    wanted = [int(logits[list(asked.letters)].argmax()) for logits in last]
    assert any(int(logits.argmax()) not in asked.letters for logits in last), "the likeliest token of all is another"
    right = sum(given == answer for given, answer in zip(wanted, asked.answers, strict=True))
    found = evaluate(multiple_choice(size, asked), scorer)
    assert found["mmlu_eval_accuracy"] == right / len(wanted)
    assert found["mmlu_questions"] == len(wanted)


def test_a_model_that_gives_all_logits_answers_alike(model: Any, scorer: Scorer) -> None:
    class Whole(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, *, input_ids: torch.Tensor, attention_mask: torch.Tensor, use_cache: bool) -> Any:
            return self.inner(input_ids=input_ids, attention_mask=attention_mask, use_cache=use_cache)

    task = multiple_choice(4, questions())
    whole = Scorer(Whole(), CPU, compute=torch.float32)
    assert not whole._keeps_some
    assert scorer._keeps_some
    assert evaluate(task, whole) == evaluate(task, scorer)


def test_four_bit_layers_are_left_alone() -> None:
    class Linear4bit(torch.nn.Linear):
        """Of the same name as the one of bitsandbytes."""

    layers = torch.nn.Sequential(Linear4bit(2, 2), torch.nn.Dropout(0.5))
    with Scorer(layers, CPU, compute=torch.float32).evaluating():
        seen = [layers[0].training, layers[1].training, layers.training]
    assert seen == [True, False, False]
    assert all(module.training for module in layers.modules())


def test_rows_that_are_not_packed_are_documents_of_their_own_where_attention_is_of_variable_length() -> None:
    batch = collate([ROWS[0], ROWS[5]], 0)
    told = inputs_of(batch, SimpleNamespace(config=SimpleNamespace(_attn_implementation=VARLEN)))
    width = len(ROWS[5].input_ids)
    assert told["cu_seq_lens_q"].tolist() == told["cu_seq_lens_k"].tolist() == [0, width, 2 * width]
    assert told["cu_seq_lens_q"].dtype is torch.int32
    assert told["max_length_q"] == told["max_length_k"] == width
    assert told["attention_mask"] is None
