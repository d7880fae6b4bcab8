import json

import pytest
from clockgate_trainer.data.json_rows import array_rows, line_rows
from clockgate_trainer.data.record import Fault, Kind, Record
from hypothesis import given
from hypothesis import strategies as st

GOOD = b'{"input": "a", "output": "b"}'
BAD = [
    (b'{"input": "c", "output": "\xc0b"}', Kind.NOT_UTF8, "byte 27 is 0xc0, which is not UTF-8"),
    (b'{"input": "c", "output": "d"', Kind.NOT_JSON, "not JSON"),
    (b'["c", "d"]', Kind.NOT_AN_OBJECT, "an array where an object is wanted"),
    (b"null", Kind.NOT_AN_OBJECT, "null where an object is wanted"),
    (b'{"input": "c", "input": "e", "output": "d"}', Kind.DUPLICATE_KEY, "key 'input' is there twice"),
    (b'{"a": {"b": 1, "b": 2}}', Kind.DUPLICATE_KEY, "key 'b' is there twice"),
    (b"[" * 100_000, Kind.NOT_JSON, "nested too deeply"),
    (b'{"a": ' + b"9" * 5000 + b"}", Kind.NOT_JSON, "not JSON"),
]


def faults(found: list[Record | Fault]) -> list[tuple[int | None, Kind]]:
    return [(item.line, item.kind) for item in found if isinstance(item, Fault)]


@pytest.mark.parametrize(("bad", "kind", "said"), BAD)
def test_bad_line_is_told_and_the_lines_around_it_are_read(bad: bytes, kind: Kind, said: str) -> None:
    first, fault, last = line_rows([GOOD + b"\n", b" \n", bad + b"\n", GOOD])
    assert isinstance(fault, Fault)
    assert (fault.line, fault.kind) == (3, kind)
    assert said in fault.text
    assert isinstance(first, Record)
    assert isinstance(last, Record)
    assert (first.line, last.line) == (1, 4)


def test_byte_order_mark_is_left_out_of_lines_and_of_an_array() -> None:
    (line,) = line_rows([b"\xef\xbb\xbf" + GOOD])
    (item,) = array_rows(b"\xef\xbb\xbf[" + GOOD + b"]")
    assert isinstance(line, Record)
    assert isinstance(item, Record)
    assert line.row == item.row == {"input": "a", "output": "b"}


def test_rows_of_an_array_carry_the_line_on_which_each_begins() -> None:
    found = list(array_rows(b'[\n  {"a": "1"},\n\n  {\n    "a": "2"\n  }, {"a": "3"}\n]\n'))
    assert [(item.line, item.row["a"]) for item in found if isinstance(item, Record)] == [(2, "1"), (4, "2"), (6, "3")]


def test_faults_in_an_array_are_told_by_line_and_the_rest_is_read() -> None:
    found = list(array_rows(b'[\n3,\n{"a": "1", "a": "2"},\n{"a": "\xc0"},\n{"a": "ok"}]'))
    assert faults(found) == [(2, Kind.NOT_AN_OBJECT), (3, Kind.DUPLICATE_KEY)]
    # A bad byte becomes half of a surrogate pair here, which no column may hold.
    assert [item.row["a"] for item in found if isinstance(item, Record)] == ["\udcc0", "ok"]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b'[\n{"a": "1"}\n{"a": "2"}]', 3),
        (b'[\n{"a": "1"},\n', 3),
        (b'[\n{"a": "1"},\n{"a": \n tru}]', 4),
        (b'[{"a": "1"}]\n\n[]', 3),
        (b"[" * 100_000, 1),
    ],
)
def test_broken_array_is_told_with_the_line_where_it_breaks(data: bytes, line: int) -> None:
    assert faults(list(array_rows(data)))[-1] == (line, Kind.NOT_JSON)


@given(st.binary(max_size=200))
def test_any_bytes_are_rows_or_faults(raw: bytes) -> None:
    for found in (*line_rows(raw.splitlines(keepends=True)), *array_rows(b"[" + raw)):
        assert isinstance(found, Record | Fault)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3), max_leaves=5
)
rows = st.lists(st.dictionaries(st.text(max_size=4), values, max_size=3), max_size=5)


@given(rows, st.sampled_from([None, 1]))
def test_what_json_writes_is_read_back_from_lines_and_from_an_array(written: list[object], indent: int | None) -> None:
    lines = [json.dumps(row).encode() for row in written]
    array = json.dumps(written, indent=indent).encode()
    for found in (list(line_rows(lines)), list(array_rows(array))):
        assert [dict(item.row) for item in found if isinstance(item, Record)] == written
