"""Multiple choice: the published file format, MMLU of the hub from a local copy, and what answers are worth."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clockgate_trainer.data.tokens import Marks
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.evaluation.mmlu_source import read_questions
from clockgate_trainer.evaluation.questions import Question, accuracies, code_questions
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.flags.table import Settings

MARKS = Marks(begin=1, end=2, pad=0)
HEAD = "The following are multiple choice questions (with answers) about  abstract algebra.\n\n"


def encode(texts: list[str]) -> list[list[int]]:
    return [[ord(letter) for letter in text] for text in texts]


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def settings(tmp_path: Path, *flags: str) -> Settings:
    return parse(["--do_mmlu_eval", "--cache_dir", str(tmp_path / "cache"), *flags])


def rows(*answers: str) -> list[dict[str, object]]:
    return [{"subject": "anatomy", "input": f"question {n}\nAnswer:", "output": a} for n, a in enumerate(answers)]


def test_a_file_in_the_published_format_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "q.json", rows("A", "D"))
    found = read_questions(settings(tmp_path, "--mmlu_dataset", str(path)))
    assert found == [Question("question 0\nAnswer:", 0, "anatomy"), Question("question 1\nAnswer:", 3, "anatomy")]
    assert read_questions(settings(tmp_path, "--mmlu_dataset", str(path), "--max_mmlu_samples", "1")) == found[:1]


@pytest.mark.parametrize(
    ("name", "split", "file"),
    [
        ("mmlu-fs", "eval", "five_shot_mmlu_val.json"),
        ("mmlu", "test", "five_shot_mmlu_test.json"),
        ("mmlu-zs", "eval", "zero_shot_mmlu_val.json"),
    ],
)
def test_named_sets_are_the_files_of_a_qlora_checkout_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, split: str, file: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "data/mmlu" / file, rows("B"))
    found = read_questions(settings(tmp_path, "--mmlu_dataset", name, "--mmlu_split", split))
    assert [one.answer for one in found] == [1]


def lay_hub_copy(folder: Path) -> Path:
    """A local copy of the hub's MMLU, in its layout."""
    items = [
        {"question": f"{name} {n}?", "subject": "abstract_algebra", "choices": ["0", "4", "2", "6"], "answer": n % 4}
        for name in ("dev", "val")
        for n in range(6)
    ]
    (folder / "all").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(items[:6]), folder / "all/dev-00000-of-00001.parquet")
    pq.write_table(pa.Table.from_pylist(items[6:]), folder / "all/validation-00000-of-00001.parquet")
    return folder


@pytest.mark.parametrize(("name", "shots"), [("mmlu-zs", 0), ("mmlu-fs", 5)])
def test_mmlu_of_the_hub_is_laid_out_as_in_the_published_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, shots: int
) -> None:
    monkeypatch.chdir(tmp_path)
    copy = lay_hub_copy(tmp_path / "copy")
    found = read_questions(settings(tmp_path, "--mmlu_dataset", name), hub_id=str(copy))
    asked = "{} {}?\nA. 0\nB. 4\nC. 2\nD. 6\nAnswer:"
    examples = "".join(f"{asked.format('dev', n)} {'ABCDA'[n]}\n\n" for n in range(shots))
    assert found[1] == Question(f"{HEAD}{examples}{asked.format('val', 1)}", 1, "abstract_algebra")
    assert len(found) == 6


def test_a_named_set_that_is_nowhere_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        read_questions(settings(tmp_path), hub_id=str(tmp_path / "none"))
    for part in ("--mmlu_dataset mmlu-fs", "five_shot_mmlu_val.json", "working folder", "give a local file"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"input": "q", "output": "E"}, "output is 'E' where A, B, C or D is wanted"),
        ({"input": "q", "output": None}, "null"),
        ({"input": "q"}, "output is missing"),
        ({"input": "q", "output": "A", "subject": 3}, "subject is 3"),
    ],
)
def test_a_bad_row_is_refused_with_file_and_line(tmp_path: Path, row: dict[str, object], told: str) -> None:
    path = write(tmp_path / "q.json", [*rows("A"), row])
    with pytest.raises(ConfigError) as caught:
        read_questions(settings(tmp_path, "--mmlu_dataset", str(path)))
    assert f"{path}:2:" in str(caught.value)
    assert told in str(caught.value)


def test_a_question_that_is_too_long_loses_its_beginning_and_keeps_its_end() -> None:
    found = code_questions(
        [Question("abcdefgh:", 0, "s"), Question("x:", 1, "s")], encode, MARKS, longest=5, split="eval"
    )
    assert [row.input_ids.tolist() for row in found.rows] == [[1, *map(ord, "fgh:")], [1, *map(ord, "x:")]]
    assert found.cut == 1
    assert found.letters == tuple(map(ord, "ABCD"))


def test_letters_that_are_one_token_are_refused() -> None:
    with pytest.raises(ConfigError, match="four different"):
        code_questions([], lambda texts: [[7] for _ in texts], MARKS, longest=5, split="eval")


def test_every_subject_counts_the_same_in_the_mean() -> None:
    asked = [Question("q", 0, "a")] * 3 + [Question("q", 1, "b")]
    coded = code_questions(asked, encode, MARKS, longest=9, split="test")
    assert accuracies(coded, [0, 0, 3, 1]) == {
        "mmlu_test_accuracy": pytest.approx((2 / 3 + 1) / 2),
        "mmlu_test_accuracy_a": pytest.approx(2 / 3),
        "mmlu_test_accuracy_b": 1.0,
    }


def test_questions_without_a_subject_have_one_accuracy() -> None:
    coded = code_questions([Question("q", 0, ""), Question("q", 1, "")], encode, MARKS, longest=9, split="eval")
    assert accuracies(coded, [0, 0]) == {"mmlu_eval_accuracy": 0.5}
