from pathlib import Path

import pytest
from clockgate_trainer.data.delimited import delimited_rows
from clockgate_trainer.data.record import Fault, Kind, Record
from hypothesis import given
from hypothesis import strategies as st


def read(folder: Path, content: bytes, delimiter: str = ",") -> list[Record | Fault]:
    path = folder / "rows.csv"
    path.write_bytes(content)
    return list(delimited_rows(path, delimiter))


def test_rows_are_read_by_the_header_and_quotes_may_hold_lines(tmp_path: Path) -> None:
    found = read(tmp_path, b'\xef\xbb\xbfinput,output\r\n"a ""b""\nc",d\r\n\r\ne,\r\n')
    assert found == [
        Record(2, {"input": 'a "b"\nc', "output": "d"}),
        Record(5, {"input": "e", "output": ""}),
    ]


def test_tabs_divide_a_tsv_file(tmp_path: Path) -> None:
    assert read(tmp_path, b"input\toutput\na,b\tc\n", "\t") == [Record(2, {"input": "a,b", "output": "c"})]


def test_field_longer_than_the_library_takes_by_default_is_read(tmp_path: Path) -> None:
    (row,) = read(tmp_path, b"input,output\na," + b"x" * 200_000 + b"\n")
    assert isinstance(row, Record)
    assert len(str(row.row["output"])) == 200_000


@pytest.mark.parametrize(
    ("content", "line", "kind", "said"),
    [
        (b'a,b\n"x"y,z\nok,ok\n', 2, Kind.CSV_QUOTING, 'write a quote inside a quoted field as ""'),
        (b'a,b\nok,ok\n"open,1\n2,3\n4,5\n', 3, Kind.CSV_QUOTING, "never closed"),
        (b"a,b\nok,ok\n1,2,3\n", 3, Kind.CSV_WIDTH, "3 fields where the header has 2: quote a field that holds a ','"),
        (b"a,b\n1\nok,ok\n", 2, Kind.CSV_WIDTH, "1 field where the header has 2"),
        (b"a,a\n1,2\n", 1, Kind.DUPLICATE_KEY, "column 'a' is in the header twice"),
        (b'"a,b\n1,2\n', 1, Kind.CSV_QUOTING, "never closed"),
    ],
)
def test_fault_is_told_with_the_line_on_which_its_row_begins(
    tmp_path: Path, content: bytes, line: int, kind: Kind, said: str
) -> None:
    faults = [found for found in read(tmp_path, content) if isinstance(found, Fault)]
    assert [(fault.line, fault.kind) for fault in faults] == [(line, kind)]
    assert said in faults[0].text


def test_rows_after_a_fault_are_read(tmp_path: Path) -> None:
    found = read(tmp_path, b'a,b\n"x"y,z\nok,ok\n')
    assert found[-1] == Record(3, {"a": "ok", "b": "ok"})


@given(content=st.binary(max_size=200), delimiter=st.sampled_from([",", "\t"]))
def test_any_bytes_are_rows_or_faults(tmp_path_factory: pytest.TempPathFactory, content: bytes, delimiter: str) -> None:
    folder = tmp_path_factory.mktemp("csv", numbered=True)
    for found in read(folder, content, delimiter):
        assert isinstance(found, Record | Fault)
