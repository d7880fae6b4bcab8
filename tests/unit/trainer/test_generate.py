"""`clockgate-train generate` and decoding: the same words as transformers, whatever is beside them in a batch."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.generate import main
from clockgate_trainer.generation.decode import Decoder, prepare
from clockgate_trainer.train.attention import use_varlen
from clockgate_trainer.train.model import build_model
from clockgate_trainer.train.qlora import QLORA
from peft import PeftModel
from support.tiny_model import make_model, make_tokenizer
from transformers import AutoModelForCausalLM

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*is_gradient_checkpointing:FutureWarning",  # peft asks transformers by its old name
)
PROMPTS = [[1, 20, 30, 40], [1, 9], [1, 50, 51, 52, 53, 54, 55]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def adapter(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("adapter")
    model = build_model(parse(["--model_name_or_path", str(folder), "--lora_r", "4"]), torch.device("cpu"))
    torch.manual_seed(5)
    with torch.no_grad():
        for tensor in model.parameters():
            if tensor.requires_grad:
                tensor.normal_(std=0.2)
    model.save_pretrained(path, save_embedding_layers=False)
    return path


def decoder(folder: Path, *flags: str, seed: int = 0) -> Decoder:
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    # What a chat model brings along, and no answer may depend on.
    model.generation_config.update(do_sample=True, temperature=9.0, top_k=3, max_length=7)
    prepare(model)
    return Decoder(model, make_tokenizer(), parse(["--max_new_tokens", "9", *flags]), seed=seed)


def test_a_batch_padded_on_the_left_answers_as_each_prompt_alone(folder: Path) -> None:
    ready = decoder(folder)
    together = ready.answer(PROMPTS, 0)
    assert [answer.text for answer in together] == [ready.answer([prompt], 0)[0].text for prompt in PROMPTS]
    assert all(1 <= answer.tokens <= 9 for answer in together)


def test_streamed_text_is_the_answer(folder: Path) -> None:
    ready = decoder(folder)
    pieces: list[str] = []
    answer = ready.stream(PROMPTS[0], 0, pieces.append)
    assert "".join(pieces).strip() == answer.text == ready.answer(PROMPTS[:1], 0)[0].text


def test_a_sample_follows_from_seed_and_batch_alone(folder: Path) -> None:
    flags = ("--do_sample", "--temperature", "1.5", "--top_k", "0", "--top_p", "0.95", "--typical_p", "0.9")
    ready = decoder(folder, *flags)
    first = ready.answer(PROMPTS, 3)
    ready.answer(PROMPTS, 4)
    assert ready.answer(PROMPTS, 3) == first == decoder(folder, *flags).answer(PROMPTS, 3)
    assert decoder(folder, *flags, seed=1).answer(PROMPTS, 3) != first


@pytest.mark.parametrize(
    "flags",
    [
        ("--num_beams", "3", "--length_penalty", "0.5"),
        ("--num_beams", "2", "--do_sample"),
        ("--repetition_penalty", "1.7", "--no_repeat_ngram_size", "1"),
        ("--no_use_cache",),
    ],
    ids=" ".join,
)
def test_every_kind_of_decoding_answers(folder: Path, flags: tuple[str, ...]) -> None:
    answers = decoder(folder, *flags).answer(PROMPTS, 0)
    assert all(answer.tokens for answer in answers)
    if "--no_repeat_ngram_size" in flags:
        letters = answers[0].text.replace(" ", "")
        assert len(set(letters)) == len(letters)
    if flags == ("--no_use_cache",):
        assert answers == decoder(folder).answer(PROMPTS, 0)


def test_an_answer_has_at_least_and_at_most_as_many_tokens_as_asked(folder: Path) -> None:
    answers = decoder(folder, "--min_new_tokens", "9").answer(PROMPTS, 0)
    assert [(answer.tokens, answer.ended) for answer in answers] == [(9, False)] * 3


def test_an_answer_stops_at_the_end_mark(folder: Path) -> None:
    ready = decoder(folder)
    first = ready.answer(PROMPTS[:1], 0)[0]
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    made = model.generate(torch.tensor(PROMPTS[:1]), max_new_tokens=9, do_sample=False)[0, 4:].tolist()
    # The third token of that answer as one more end mark of the model.
    model.generation_config.eos_token_id = [2, made[2]]
    prepare(model)
    stopped = Decoder(model, make_tokenizer(), parse(["--max_new_tokens", "9"]), seed=0).answer(PROMPTS, 0)[0]
    assert (stopped.tokens, stopped.ended) == (made.index(made[2]) + 1, True)
    assert first.text.startswith(stopped.text)


def test_generation_is_cut_short_when_it_may_not_go_on(folder: Path) -> None:
    answers = decoder(folder, "--min_new_tokens", "9").answer(PROMPTS, 0, lambda: False)
    assert [answer.tokens for answer in answers] == [1, 1, 1]


def test_adapter_answers_from_a_file_as_plain_peft_does(
    folder: Path, adapter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "prompts.jsonl"
    rows.write_text('{"input": "say 3"}\n{"output": "x"}\n{"input": "hello", "output": "y"}\n', encoding="utf-8")
    line = [str(adapter), "--bits", "32", "--device", "cpu", "--max_new_tokens", "7"]
    assert main([*line, "--prompts", str(rows), "--json"]) == 1
    told = capsys.readouterr()
    assert f"{rows}:2: column input is missing" in told.err
    first, third = (json.loads(text) for text in told.out.splitlines())
    plain: Any = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), adapter).eval()
    tokenizer = make_tokenizer()
    ids = tokenizer("say 3", add_special_tokens=False)["input_ids"]
    made = plain.generate(input_ids=torch.tensor([[1, *ids]]), max_new_tokens=7, do_sample=False)[0, len(ids) + 1 :]
    assert first["prediction"] == str(tokenizer.decode(made, skip_special_tokens=True)).strip()
    assert (first["line"], third["line"], third["output"]) == (1, 3, "y")


def test_prompts_of_the_command_line_and_of_a_pipe_are_answered_as_text(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ["--model_name_or_path", str(folder), "--bits", "32", "--device", "cpu", "--max_new_tokens", "5"]
    assert main([*line, "--prompt", "abc"]) == 0
    text = capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.StringIO("abc\n"))
    assert main([str(folder), *line[2:]]) == 0
    assert capsys.readouterr().out == text != "\n"


def test_a_model_that_trained_on_packed_rows_answers_as_one_that_did_not(folder: Path) -> None:
    settings = parse(["--model_name_or_path", str(folder), "--bits", "32", "--max_new_tokens", "5"])
    cpu = torch.device("cpu")
    plain, packed = build_model(settings, cpu), build_model(settings, cpu)
    # As a run with --packing leaves it on CUDA.
    use_varlen(packed.get_base_model())
    first, second = (QLORA.make_speaker(settings, model).answer(PROMPTS, 0) for model in (plain, packed))
    assert first == second


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        ([], 2, "nothing answers"),
        (["--prompt", "a", "--penalty_alpha", "0.6"], 2, "contrastive search"),
        (["/nowhere", "--prompt", "a"], 78, "no such folder"),
        (["--prompt", "a", "--prompts", "f"], 2, "wanted one of them"),
        (["--best", "--prompt", "a"], 2, "--best wants a run folder"),
        (["--batch_size", "0"], 2, "from 1"),
        (["--model_name_or_path", "m", "--prompts", "/nowhere.jsonl"], 78, "/nowhere.jsonl: no such file"),
        (["--model_name_or_path", "m", "--prompt", "a", "--prompt", "\udcff"], 2, "prompt 2 cannot be asked"),
        (["--model_name_or_path", "m", "--prompt", "\udcff", "--dataset_format", "chat"], 2, "as UTF-8 text"),
    ],
)
def test_what_cannot_be_answered_is_told(
    words: list[str], code: int, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == code
    assert named in capsys.readouterr().err
