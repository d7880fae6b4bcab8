import json
from dataclasses import replace
from pathlib import Path

import pytest
from clockgated.clock.breach import Breach
from clockgated.clock.model import Reason, ReasonCode, Reference
from clockgated.memory.last_reading import LastReadingFile, encode, parse
from clockgated.memory.resume import Discarded, SavedReading
from hypothesis import given
from hypothesis import strategies as st
from support.saved_readings import READING, SAVED

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def test_a_saved_reading_is_read_back_as_it_was(tmp_path: Path) -> None:
    file = LastReadingFile(tmp_path / "last-reading.json")
    bare = replace(
        SAVED,
        reading=replace(READING, relative_bound_ns=None, utc_bound_ns=None, offset_ns=None, reference=Reference()),
        look=replace(SAVED.look, steering_id=None),
        steering=None,
        good_boot_ns=None,
    )
    broken = replace(
        SAVED,
        reading=replace(READING, estimate_95_ns=7),
        update_id="1",
        breach=Breach(
            (Reason(ReasonCode.SUSPENDED, "slept"),), "0", over_boot_ns=7, younger_ns=8, settled_update_id="3"
        ),
        steering_ppb=9,
    )
    for saved in (SAVED, bare, broken):
        file.save(saved)
        assert file.load() == saved
    assert [path.name for path in tmp_path.iterdir()] == ["last-reading.json"]


def test_a_file_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    found = LastReadingFile(tmp_path / "none").load()
    assert isinstance(found, Discarded)
    assert "No such file" in found.why


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    found = LastReadingFile(path).load()
    assert isinstance(found, Discarded)
    assert "more than" in found.why


@given(st.binary(max_size=500))
def test_any_bytes_are_a_reading_or_a_reason(data: bytes) -> None:
    assert isinstance(parse(data), SavedReading | Discarded)


@given(st.data(), JSON)
def test_any_value_in_any_place_is_a_reading_or_a_reason(data: st.DataObject, value: object) -> None:
    fields = json.loads(encode(SAVED))
    place = fields
    while True:
        key = data.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[key], dict) or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = value
    assert isinstance(parse(json.dumps(fields).encode()), SavedReading | Discarded)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"format": 1', b'"format": 2'),
        (b'"state": 3', b'"state": 0'),
        (b'"epoch": 4', b'"epoch": true'),
        (b'"epoch": 4', b'"epoch": 1e3'),
        (b'"growth_ppb": 50000', b'"growth_ppb": -1'),
        (b'"relative_bound_ns": 200000', b'"relative_bound_ns": -1'),
        (b'"boot_ns": ', b'"boot_ns": 99999999999999999999'),
        (b'"assumptions": ["a"]', b'"assumptions": [1]'),
        (b"}\n", b""),
    ],
)
def test_a_damaged_file_says_what_is_wrong(old: bytes, new: bytes) -> None:
    whole = encode(SAVED)
    assert old in whole
    found = parse(whole.replace(old, new, 1))
    assert isinstance(found, Discarded)
    assert found.why.startswith("not a saved reading: ")


def test_a_discarded_reading_is_gone(tmp_path: Path) -> None:
    file = LastReadingFile(tmp_path / "last-reading.json")
    file.save(SAVED)
    file.discard()
    file.discard()
    assert isinstance(file.load(), Discarded)
