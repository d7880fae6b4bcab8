"""Data of a run from its flags, with a real tokenizer."""

import json
from pathlib import Path

import pytest
from clockgate_trainer.data.hub_sets import NAMED, HubSet
from clockgate_trainer.data.order import Split
from clockgate_trainer.data.split import hold_out
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.train.corpus import load_corpus
from clockgate_trainer.train.feeding import count_steps, describe, make_feed
from clockgate_trainer.train.parts import Corpus
from support.tiny_model import make_tokenizer

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'assistant' %}A:{{ m.content }}{{ eos_token }}"
    "{% else %}U:{{ m.content }};{% endif %}{% endfor %}{% if add_generation_prompt %}A:{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def flags(tokenizer: Path, tmp_path: Path) -> list[str]:
    return ["--model_name_or_path", str(tokenizer), "--output_dir", str(tmp_path / "run")]


def write(path: Path, *rows: object) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def pairs(*answers: str) -> list[dict[str, str]]:
    return [{"input": "q", "output": answer} for answer in answers]


def answers(corpus: Corpus) -> list[str]:
    """The answers of all rows, without their end marks."""
    words = make_tokenizer().convert_ids_to_tokens
    learned = ([int(label) for label in row.labels if label >= 0] for row in corpus.data.rows)
    return ["".join(words(row)).removesuffix("</s>") for row in learned]


def refusal(*flags: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_corpus(parse(flags))
    return str(caught.value)


def test_rows_are_tokenized_once_and_read_from_the_cache_afterwards(
    flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.jsonl", *pairs("x", "", "z"))
    first = load_corpus(parse([*flags, "--dataset", path]))
    monkeypatch.setattr("clockgate_trainer.train.corpus.code", None)
    again = load_corpus(parse([*flags, "--dataset", path]))
    assert again.data.fingerprint == first.data.fingerprint
    assert again.notes == first.notes
    assert answers(again) == ["x", "", "z"]


@pytest.mark.parametrize("change", [["--source_max_len", "9"], ["--train_on_source"], ["--max_train_samples", "1"]])
def test_another_setting_makes_other_tokens(flags: list[str], tmp_path: Path, change: list[str]) -> None:
    path = write(tmp_path / "a.jsonl", {"input": "a long question", "output": "x"}, *pairs("y"))
    first = load_corpus(parse([*flags, "--dataset", path]))
    other = load_corpus(parse([*flags, *change, "--dataset", path]))
    assert other.data.fingerprint != first.data.fingerprint


def test_changed_file_is_tokenized_anew(flags: list[str], tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", *pairs("x"))
    load_corpus(parse([*flags, "--dataset", path]))
    write(tmp_path / "a.jsonl", *pairs("y"))
    assert answers(load_corpus(parse([*flags, "--dataset", path]))) == ["y"]


def test_bad_rows_are_refused_with_file_line_and_a_way_to_leave_them_out(flags: list[str], tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", *pairs("x"), {"input": "q", "output": None}, {"input": "q"})
    told = refusal(*flags, "--dataset", path)
    assert f"{path}:2: output is null" in told
    assert f"{path}:3: column output is missing" in told
    assert "2 bad rows. Nothing was trained" in told
    assert f"clockgate-train lint {path} --fix" in told


def test_twenty_bad_rows_are_told_and_no_more(flags: list[str], tmp_path: Path) -> None:
    told = refusal(*flags, "--dataset", write(tmp_path / "a.jsonl", *[{}] * 25))
    assert told.count("is missing") == 20
    assert "there may be more" in told


def test_suspect_rows_are_told_and_refused_only_when_asked(flags: list[str], tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", *pairs("x", " ", "None"))
    notes = " ".join(load_corpus(parse([*flags, "--dataset", path])).notes)
    assert f"{path}:2: the answer is empty" in notes
    assert f"{path}:3: the answer is the word 'None'" in notes
    told = refusal(*flags, "--dataset", path, "--strict_data")
    assert "2 bad rows" in told
    assert f"{path}:2: the answer is empty" in told


def test_unset_format_is_input_output_and_an_alpaca_file_is_warned_about(flags: list[str], tmp_path: Path) -> None:
    rows = [{"instruction": "i", "input": "q", "output": "x"}]
    path = write(tmp_path / "a.jsonl", *rows)
    corpus = load_corpus(parse([*flags, "--dataset", path]))
    assert "column instruction is not read; for an Alpaca file give --dataset_format alpaca" in corpus.notes[0]
    assert corpus.data.lengths.tolist() == [4]
    assert load_corpus(parse([*flags, "--dataset", path, "--dataset_format", "alpaca"])).data.lengths[0] > 50


def test_several_files_are_joined_and_shares_are_drawn_by_the_seed(flags: list[str], tmp_path: Path) -> None:
    one = write(tmp_path / "a.jsonl", *pairs(*"abcdefgh"))
    two = write(tmp_path / "b.jsonl", *pairs("x", "y"))
    assert answers(load_corpus(parse([*flags, "--dataset", f"{one},{two}"]))) == list("abcdefghxy")
    mixed = load_corpus(parse([*flags, "--dataset", f"{one}:0.5,{two}:0.5"]))
    assert sum(answer in "xy" for answer in answers(mixed)) == 5
    assert f"{one} 5, {two} 5" in " ".join(mixed.notes)
    again = load_corpus(parse([*flags, "--dataset", f"{one}:0.5,{two}:0.5"]))
    assert again.data.fingerprint == mixed.data.fingerprint
    others = [
        load_corpus(parse([*flags, "--dataset", f"{one}:0.5,{two}:0.5", "--data_seed", str(seed)])) for seed in range(4)
    ]
    assert {other.data.fingerprint for other in others} != {mixed.data.fingerprint}


def test_rows_are_held_out_when_asked_and_the_limit_counts_what_is_left(flags: list[str], tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", *pairs(*"abcdefghij"))
    train, _ = hold_out(10, 4)
    corpus = load_corpus(parse([*flags, "--dataset", path, "--eval_dataset_size", "4"]))
    assert answers(corpus) == ["abcdefghij"[row] for row in train]
    assert "4 of 10 rows are held out" in " ".join(corpus.notes)
    limited = load_corpus(parse([*flags, "--dataset", path, "--eval_dataset_size", "4", "--max_train_samples", "3"]))
    assert answers(limited) == ["abcdefghij"[row] for row in train[:3]]
    few = load_corpus(parse([*flags, "--dataset", path, "--eval_dataset_size", "1024"]))
    assert len(few.data) == 10
    assert "holds nothing out: the data has 10 rows" in " ".join(few.notes)


def test_known_set_beside_files_keeps_its_own_format(
    flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    write(copy / "train.jsonl", {"text": "x"})
    monkeypatch.setitem(NAMED, "oasst1", HubSet(str(copy), "oasst1"))
    one = write(tmp_path / "a.jsonl", {"prompt": "q", "completion": "y"})
    both = [*flags, "--dataset", f"oasst1,{one}", "--dataset_format", "self-instruct"]
    assert answers(load_corpus(parse([*both, "--cache_dir", str(tmp_path / "cache")]))) == ["x", "y"]


def test_chats_are_laid_out_by_the_template_that_is_given(flags: list[str], tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
    chat = [*flags, "--dataset", write(tmp_path / "a.jsonl", {"messages": turns}), "--dataset_format", "chat"]
    assert "--chat_template" in refusal(*chat)
    (tmp_path / "t.jinja").write_text(TEMPLATE, encoding="utf-8")
    assert answers(load_corpus(parse([*chat, "--chat_template", str(tmp_path / "t.jinja")]))) == ["yes"]
    assert "t2.jinja cannot be read" in refusal(*chat, "--chat_template", str(tmp_path / "t2.jinja"))


def test_missing_data_names_what_could_be_meant(flags: list[str]) -> None:
    told = refusal(*flags, "--dataset", "alpca")
    assert "no such file" in told
    assert "alpaca-clean" in told


def test_recipe_steps_are_told_as_samples_when_rows_are_packed(flags: list[str], tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", *pairs(*["x" * (n % 9) + "y" for n in range(40)]))
    packed = [*flags, "--dataset", path, "--packing", "--pack_length", "40", "--max_steps", "30"]
    split = Split(world=2, micro_batch=1, accumulation=2)
    settings = parse(packed)
    feed = make_feed(settings, load_corpus(settings))
    steps = count_steps(settings, feed, split)
    # 30 steps of 4 samples are 3 epochs of 40, which packed take fewer steps.
    per_epoch = -(-feed.rows_per_epoch() // split.rows_per_step)
    assert steps == 3 * per_epoch < 30
    told = " ".join(describe(settings, feed, split, steps))
    assert f"--max_steps 30 stands for 120 samples without packing, which {steps} packed steps hold" in told
    assert "packed rows" in told
    assert count_steps(parse([*packed, "--keep_steps"]), feed, split) == 30
    unpacked = parse([*flags, "--dataset", path, "--max_steps", "30"])
    assert count_steps(unpacked, make_feed(unpacked, load_corpus(unpacked)), split) == 30


def test_packed_row_is_as_long_as_both_limits_unless_told(flags: list[str]) -> None:
    lengths = ["--source_max_len", "16", "--target_max_len", "512"]
    assert parse([*flags, *lengths, "--packing"]).packed_tokens == 528
    assert parse([*flags, *lengths, "--packing", "--pack_length", "2048"]).packed_tokens == 2048
    assert parse([*flags, *lengths]).packed_tokens is None
