import contextlib
import json
from pathlib import Path

import pytest
from clockgate_trainer.data.formats import COLUMNS
from clockgate_trainer.data.jsonl import MAX_PROBLEMS, BadRowError, pair_from_line, read_pairs
from clockgate_trainer.errors import ConfigError, ExitCode
from hypothesis import given
from hypothesis import strategies as st

GOOD = b'{"input": "a", "output": "b"}\n'


def write(folder: Path, content: bytes, name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def refusal(path: Path, format_name: str = "input-output") -> str:
    with pytest.raises(ConfigError) as caught:
        read_pairs(path, format_name, None)
    assert caught.value.exit_code is ExitCode.CONFIG
    return str(caught.value)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (b'{"input": "c", "output": null}', "output is null where text is wanted"),
        (b'{"input": "c", "output": 3}', "output is a number where text is wanted"),
        (b'{"input": "c", "output": {"k": 1}}', "output is an object where text is wanted"),
        (b'{"input": ["c"], "output": "d"}', "input is an array where text is wanted"),
        (b'{"input": true, "output": "d"}', "input is true or false where text is wanted"),
        (b'{"input": "c", "output": "\xc0b"}', "byte 27 is 0xc0, which is not UTF-8"),
        (b'{"input": "c", "output": "\\ud800"}', "\\ud800"),
        (b'{"input": "c"}', "column output is missing: the row has input"),
        (b'{"input": "c", "output": "d"', "not JSON"),
        (b'["c", "d"]', "an array where an object is wanted"),
        (b"null", "null where an object is wanted"),
        (b'{"input": "c", "input": "e", "output": "d"}', "key 'input' is there twice"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_bad_row_is_named_with_file_and_line(tmp_path: Path, bad: bytes, said: str) -> None:
    path = write(tmp_path, GOOD + b"\n" + bad + b"\n" + GOOD)
    message = refusal(path)
    assert f"{path}:3: " in message
    assert said in message
    assert "1 bad row." in message


def test_all_bad_rows_are_reported_at_once_up_to_a_limit(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, b"{}\n" * (MAX_PROBLEMS + 5)))
    assert message.count("is missing") == MAX_PROBLEMS
    assert "there may be more" in message


def test_missing_column_suggests_the_format_that_fits(tmp_path: Path) -> None:
    path = write(tmp_path, b'{"instruction": "a", "output": "b"}\n')
    assert "--dataset_format alpaca would fit" in refusal(path)


def test_chat_row_with_alpaca_format_names_what_it_has(tmp_path: Path) -> None:
    path = write(tmp_path, b'{"messages": [{"role": "user", "content": "hi"}]}\n')
    assert "column instruction, output is missing: the row has messages" in refusal(path, "alpaca")


def test_null_in_an_optional_column_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, b'{"instruction": "a", "input": null, "output": "b"}\n')
    assert "input is null" in refusal(path, "alpaca")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_file_without_rows_is_refused(tmp_path: Path, content: bytes) -> None:
    assert "has no rows" in refusal(write(tmp_path, content))


def test_missing_file_folder_and_other_formats_are_refused(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "alpaca")
    assert "is not a file" in refusal(tmp_path)
    assert ".csv files are not supported yet" in refusal(write(tmp_path, b"", "rows.csv"))


def test_rows_are_read_in_order_with_their_lines(tmp_path: Path) -> None:
    path = write(tmp_path, b"\xef\xbb\xbf" + GOOD + b"\n" + GOOD.replace(b"a", "é".encode()).rstrip())
    assert [(pair.prompt, pair.line) for pair in read_pairs(path, "input-output", None)] == [("a", 1), ("é", 3)]


def test_rows_behind_the_limit_are_not_read(tmp_path: Path) -> None:
    assert len(read_pairs(write(tmp_path, GOOD * 2 + b"broken\n"), "input-output", 2)) == 2


@given(st.binary(max_size=200), st.sampled_from(sorted(COLUMNS)))
def test_any_bytes_are_a_pair_or_a_bad_row(raw: bytes, format_name: str) -> None:
    with contextlib.suppress(BadRowError):
        pair_from_line(raw, format_name, 1)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
)


@given(st.dictionaries(st.sampled_from(["instruction", "input", "output"]), values), st.sampled_from(sorted(COLUMNS)))
def test_only_text_is_ever_trained_on(row: dict[str, object], format_name: str) -> None:
    wanted = COLUMNS[format_name]
    present = [row[name] for name in (*wanted.needed, *wanted.optional) if name in row]
    good = all(name in row for name in wanted.needed) and all(isinstance(value, str) for value in present)
    if good:
        assert pair_from_line(json.dumps(row).encode(), format_name, 1).answer == row["output"]
    else:
        with pytest.raises(BadRowError):
            pair_from_line(json.dumps(row).encode(), format_name, 1)
