import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clockgate_trainer.__main__ import main
from clockgate_trainer.data.local import file_rows
from clockgate_trainer.data.record import Kind, Record
from clockgate_trainer.lint.inspect import inspect
from hypothesis import given
from hypothesis import strategies as st
from support.tiny_model import make_tokenizer

GOOD = b'{"input": "a", "output": "b"}\n'
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'assistant' %}A:{{ m.content }}{{ eos_token }}"
    "{% else %}U:{{ m.content }};{% endif %}{% endfor %}{% if add_generation_prompt %}A:{% endif %}"
)


def parquet(path: Path) -> None:
    pq.write_table(pa.table({"input": ["a", "b"], "output": ["c", None]}), path)


def lines(*rows: bytes) -> bytes:
    return GOOD + b"\n".join(rows) + b"\n"


CHAT = {"messages": [{"role": "user", "content": "u" * 80}, {"role": "assistant", "content": "yes"}]}
# Each file has one fault; the place and the words that must be told.
BROKEN: dict[str, tuple[bytes | Callable[[Path], None], int | None, str]] = {
    "01-null.jsonl": (lines(b'{"input": "c", "output": null}'), 2, "output is null where text is wanted"),
    "02-type.jsonl": (lines(b'{"input": "c", "output": {"k": 1}}'), 2, "output is an object where text is wanted"),
    "03-utf8.jsonl": (lines(b'{"input": "c", "output": "\xc0b"}'), 2, "byte 27 is 0xc0, which is not UTF-8"),
    "04-twice.jsonl": (lines(b'{"input": "c", "input": "d", "output": "e"}'), 2, "key 'input' is there twice"),
    "05-surrogate.jsonl": (lines(b'{"input": "c", "output": "\\ud83d"}'), 2, "half of a surrogate pair, \\ud83d"),
    "06-column.jsonl": (lines(b'{"input": "c"}'), 2, "column output is missing: the row has input"),
    "07-json.jsonl": (lines(b'{"input": "c", "output": "d"'), 2, "not JSON"),
    "08-rows.json": (b"[]\n", None, "the file has no rows"),
    "09-empty.csv": (b"", None, "the file is empty"),
    "10-lost.jsonl": (json.dumps(CHAT).encode() + b"\n", 1, "its first answer begins behind token 64"),
    "11-answer.tsv": (b"input\toutput\nc\td\ne\t\n", 3, "the answer is empty"),
    "12-open.csv": (b'input,output\nc,d\n"e,f\ng,h\n', 3, "a quote is opened and never closed"),
    "13-quote.csv": (b'input,output\nc,d\n"e"e,f\n', 3, "text follows a closing quote"),
    "14-array.json": (b'[\n{"input": "a", "output": "b"},\n["c"]\n]', 3, "an array where an object is wanted"),
    "15-null.parquet": (parquet, 2, "output is null where text is wanted"),
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    made = make_tokenizer()
    made.chat_template = TEMPLATE
    made.save_pretrained(folder)
    return folder


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    folder = tmp_path / "broken"
    folder.mkdir()
    for name, (content, _, _) in BROKEN.items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            content(folder / name)
    return folder


def limits(tokenizer: Path) -> list[str]:
    return ["--model_name_or_path", str(tokenizer), "--source_max_len", "32", "--target_max_len", "32"]


def test_folder_of_fifteen_broken_files_gives_fifteen_precise_messages(
    broken: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lint", str(broken), *limits(tokenizer)]) == 1
    told = capsys.readouterr().out.splitlines()
    messages = [line for line in told if line.startswith(str(broken)) and "have no finding" not in line]
    assert len(messages) == len(BROKEN) == 15
    for message, (name, (_, line, said)) in zip(messages, sorted(BROKEN.items()), strict=True):
        place = "" if line is None else f":{line}"
        assert message.startswith(f"{broken / name}{place}: ")
        assert said in message


def test_json_report_tells_the_same_to_scripts(
    broken: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lint", str(broken), "--json", *limits(tokenizer)]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["clean"] is False
    found = {Path(file["name"]).name: file["findings"] for file in told["files"]}
    assert {name: [finding["line"] for finding in findings] for name, findings in found.items()} == {
        name: [line] for name, (_, line, _) in BROKEN.items()
    }
    assert {finding["kind"] for findings in found.values() for finding in findings} >= {"null", "csv_quoting"}


def test_clean_file_ends_with_0_and_its_lengths(
    tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD * 9 + b'{"input": "' + b"q" * 50 + b'", "output": "' + b"b" * 50 + b'"}\n')
    assert main(["lint", str(path), *limits(tokenizer)]) == 0
    told = capsys.readouterr().out
    assert "10 of 10 rows have no finding (read as input-output)" in told
    assert "tokens of a row: median 4, 90 % up to 102" in told
    assert "1 prompts are cut by --source_max_len 32" in told
    assert "1 answers are cut by --target_max_len 32" in told
    assert "the pad token is the end mark" in told


def test_format_is_guessed_from_columns_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"instruction": "a", "output": "b"}\n')
    assert main(["lint", str(path)]) == 0
    assert "read as alpaca, guessed from its columns: train with --dataset_format alpaca" in capsys.readouterr().out
    assert main(["lint", str(path), "--dataset_format", "oasst1"]) == 1


def test_look_without_a_model_does_not_wait_for_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD)
    for name in ("transformers", "peft", "bitsandbytes"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["lint", str(path)]) == 0


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.json"])
def test_clean_copy_holds_the_good_rows_and_tells_what_it_left_out(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, copy = tmp_path / name, tmp_path / "clean.jsonl"
    content = {
        "a.jsonl": b'{"input": "\xc3\xa9", "output": "b", "id": 7}\n{"input": "c", "output": null}\n\n' + GOOD,
        # Two rows on one line: only one of them goes.
        "a.json": b'[{"input": "\xc3\xa9", "output": "b", "id": 7}, {"input": "c", "output": null},'
        b'{"input": "a", "output": "b"}]',
        "a.csv": b"input,output,id\n\xc3\xa9,b,7\nc,,8\na,b,9\n",
    }[name]
    path.write_bytes(content)
    assert main(["lint", str(path), "--fix", str(copy)]) == 1
    assert path.read_bytes() == content
    assert f"wrote {copy}: 2 rows; left out 1 (" in capsys.readouterr().out
    rows = [json.loads(line) for line in copy.read_text(encoding="utf-8").splitlines()]
    assert [(row["input"], row["output"]) for row in rows] == [("é", "b"), ("a", "b")]
    assert int(rows[0]["id"]) == 7
    assert main(["lint", str(copy)]) == 0


def test_copies_of_a_folder_go_to_a_folder(broken: Path, tmp_path: Path, tokenizer: Path) -> None:
    assert main(["lint", str(broken), "--fix", str(tmp_path / "clean"), *limits(tokenizer)]) == 1
    copies = sorted(path.name for path in (tmp_path / "clean").iterdir())
    # The chat and the three files without rows have nothing left to copy.
    assert len(copies) == 12
    assert "01-null.jsonl" in copies
    assert "15-null.parquet.jsonl" in copies
    assert main(["lint", str(tmp_path / "clean")]) == 0


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    path.write_bytes(GOOD)
    other.write_bytes(b"precious")
    (tmp_path / "link.jsonl").symlink_to(path)
    for name, said in (
        (path, "the file that is read"),
        (other, "there already"),
        ("link.jsonl", "the file that is read"),
    ):
        assert main(["lint", str(path), "--fix", str(tmp_path / name)]) == 2
        assert said in capsys.readouterr().err
    assert path.read_bytes() == GOOD
    assert other.read_bytes() == b"precious"


def test_copy_that_cannot_be_finished_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD)

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert main(["lint", str(path), "--fix", str(tmp_path / "clean.jsonl")]) == 78
    assert "No space left" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to look at"),
        (["none.jsonl"], "no such file or folder"),
        (["a.txt"], "is no data file that is read"),
        (["."], "holds no data files"),
        (["a.jsonl", "--fix"], "--fix has no value"),
        (["a.jsonl", "--fix", "clean.csv"], "wanted a name that ends in .jsonl"),
        (["a.jsonl", "--source_len", "3"], "did you mean --source_max_len"),
    ],
)
def test_wrong_usage_ends_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path / "..")
    folder = tmp_path / "in"
    folder.mkdir()
    monkeypatch.chdir(folder)
    if words != ["."]:
        (folder / "a.jsonl").write_bytes(GOOD)
    (folder / "a.txt").write_bytes(b"")
    assert main(["lint", *words]) == 2
    assert said in capsys.readouterr().err


def test_dataset_flag_names_what_is_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_bytes(GOOD)
    (tmp_path / "b.jsonl").write_bytes(b"{}\n")
    mixture = f"{tmp_path / 'a.jsonl'}:0.5,{tmp_path / 'b.jsonl'}:0.5"
    assert main(["lint", "--dataset", mixture, "--packing", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [len(file["findings"]) for file in told["files"]] == [0, 1]


@given(content=st.binary(max_size=300), suffix=st.sampled_from([".jsonl", ".json", ".csv", ".tsv"]))
def test_any_bytes_are_looked_at_without_an_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, suffix: str
) -> None:
    path = tmp_path_factory.mktemp("bytes", numbered=True) / f"a{suffix}"
    path.write_bytes(content)
    report = inspect(str(path), "input-output", file_rows(path), None)
    assert report.rows >= report.kept
    assert bool(report.findings) or report.kept


@given(st.lists(st.fixed_dictionaries({"input": st.text(), "output": st.none() | st.text()}), min_size=1, max_size=8))
def test_what_is_kept_has_no_finding_of_its_own(rows: list[dict[str, Any]]) -> None:
    kept: list[Any] = []
    records = [Record(line, row) for line, row in enumerate(rows, start=1)]
    report = inspect("x", "input-output", records, None, kept.append)
    assert report.kept == len(kept)
    again = inspect("x", "input-output", [Record(1, row) for row in kept], None)
    assert not again.findings
    assert {fault.kind for fault in report.findings} <= {Kind.NULL, Kind.EMPTY_ANSWER, Kind.ANSWER_IS_NULL_WORD}
