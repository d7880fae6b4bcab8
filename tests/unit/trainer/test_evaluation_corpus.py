"""The rows that a run is evaluated on, and that training on the rest does not depend on evaluating them."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clockgate_trainer.data.hub_sets import HubSet
from clockgate_trainer.data.split import hold_out
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.train.corpus import load_corpus
from clockgate_trainer.train.exam import make_tasks
from clockgate_trainer.train.parts import Corpus
from support.tiny_model import make_tokenizer

ANSWERS = [chr(ord("a") + n) for n in range(12)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def flags(tokenizer: Path, tmp_path: Path) -> list[str]:
    path = write(tmp_path / "rows.jsonl", ANSWERS)
    base = ["--model_name_or_path", str(tokenizer), "--output_dir", str(tmp_path / "run"), "--dataset", str(path)]
    return [*base, "--dataset_format", "input-output"]


def write(path: Path, answers: list[str]) -> Path:
    path.write_text("".join(json.dumps({"input": "q", "output": one}) + "\n" for one in answers), encoding="utf-8")
    return path


def load(*flags: str) -> Corpus:
    return load_corpus(parse(flags))


def held(corpus: Corpus) -> list[str]:
    assert corpus.held is not None
    ids = ([int(label) for label in row.labels if label >= 0] for row in corpus.held.rows)
    return ["".join(make_tokenizer().convert_ids_to_tokens(row)).removesuffix("</s>") for row in ids]


def test_the_rows_that_are_held_out_are_evaluated_in_the_order_of_the_draw(flags: list[str]) -> None:
    drawn = [ANSWERS[row] for row in hold_out(12, 4)[1]]
    corpus = load(*flags, "--do_eval", "--eval_dataset_size", "4")
    assert held(corpus) == drawn
    assert len(corpus.data) == 8
    assert held(load(*flags, "--do_eval", "--eval_dataset_size", "4", "--max_eval_samples", "3")) == drawn[:3]


def test_training_rows_are_the_same_with_and_without_evaluation(flags: list[str], tmp_path: Path) -> None:
    other = str(write(tmp_path / "other.jsonl", ["x", "y", "z"]))
    plain = load(*flags)
    assert plain.held is None
    apart = load(*flags, "--do_eval", "--eval_dataset", other, "--max_eval_samples", "2")
    assert held(apart) == ["x", "y"]
    assert apart.data.fingerprint == plain.data.fingerprint
    split = load(*flags, "--eval_dataset_size", "4")
    assert split.held is None
    assert split.data.fingerprint == load(*flags, "--do_eval", "--eval_dataset_size", "4").data.fingerprint


@pytest.mark.parametrize("wanted", ["0", "12", "1024"])
def test_a_split_that_would_leave_nothing_is_refused_with_the_number_of_rows(flags: list[str], wanted: str) -> None:
    with pytest.raises(ConfigError, match=f"--eval_dataset_size is {wanted} and .* has 12 rows"):
        load(*flags, "--do_eval", "--eval_dataset_size", wanted)


def test_a_weight_on_evaluation_data_is_refused(flags: list[str], tmp_path: Path) -> None:
    other = write(tmp_path / "other.jsonl", ["x"])
    with pytest.raises(ConfigError, match="evaluated once"):
        load(*flags, "--do_eval", "--eval_dataset", f"{other}:0.5")


def test_evaluation_data_that_are_not_there_are_named_with_their_own_flag(flags: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--eval_dataset .*no such file"):
        load(*flags, "--do_eval", "--eval_dataset", str(tmp_path / "nowhere.jsonl"))


def test_a_split_of_its_own_is_evaluated_and_the_training_data_stay_whole(
    flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy" / "data"
    copy.mkdir(parents=True)
    for split, answers in (("train", ANSWERS), ("eval", ["x", "y"])):
        rows = pa.Table.from_pylist([{"input": "q", "output": one} for one in answers])
        pq.write_table(rows, copy / f"{split}-00000-of-00001.parquet")
    monkeypatch.setattr("clockgate_trainer.data.source.hub_set", lambda name: HubSet(str(copy.parent)))
    named = [*flags, "--dataset", "owner/name", "--cache_dir", str(tmp_path / "cache")]
    corpus = load(*named, "--do_eval")
    assert held(corpus) == ["x", "y"]
    assert corpus.data.fingerprint == load(*named).data.fingerprint
    assert len(corpus.data) == 12


def test_questions_are_read_with_the_models_tokenizer_and_dealt_in_batches(flags: list[str], tmp_path: Path) -> None:
    asked = write(tmp_path / "asked.json", list("ABCDA"))
    line = [*flags, "--do_mmlu_eval", "--mmlu_dataset", str(asked), "--per_device_eval_batch_size", "2"]
    settings = parse(line)
    corpus = load_corpus(settings)
    assert corpus.held is None
    assert corpus.questions is not None
    assert corpus.questions.answers == (0, 1, 2, 3, 0)
    (task,) = make_tasks(settings, corpus.unseen)
    assert [len(rows) for rows in task.batches] == [2, 2, 2]
    assert any("5 questions" in note for note in corpus.notes)
