import json
from pathlib import Path

import pytest
from clockgated import host
from clockgated.clock.model import Evidence, ReasonCode, Silence, SourceKind, Traceability
from clockgated.errors import ConfigError
from clockgated.sources.recorded import RecordedSource
from hypothesis import given
from hypothesis import strategies as st
from support.evidence import SECOND

GOOD = '{"after_s": 0, "bound_ns": 200000}'


class Replay:
    def __init__(self, folder: Path, *lines: str) -> None:
        self.now_ns = 70 * SECOND
        file = folder / "recording.jsonl"
        file.write_text("".join(f"{line}\n" for line in lines))
        self.source = RecordedSource(file, lambda: host.Stamp(self.now_ns, self.now_ns, self.now_ns))

    def read(self, after_s: float = 0) -> Evidence | Silence:
        self.now_ns = 70 * SECOND + int(after_s * SECOND)
        return self.source.read()


def test_every_key_comes_back_as_evidence(tmp_path: Path) -> None:
    line = {
        "after_s": 0,
        "bound_ns": 200_000,
        "utc_bound_ns": None,
        "offset_ns": -1_500,
        "estimate_95_ns": 900,
        "identity": "ntp:192.0.2.1",
        "source_name": "ntp.example.net",
        "stratum": 2,
        "traceability": "no",
        "faults": ["SKEW_TOO_LARGE"],
        "leap_in_progress": True,
        "steering_id": "chronyd-1",
    }
    evidence = Replay(tmp_path, json.dumps(line)).read()
    assert isinstance(evidence, Evidence)
    assert (evidence.kind, evidence.as_of_boot_ns) == (SourceKind.RECORDED, 70 * SECOND)
    assert (evidence.bound_ns, evidence.utc_bound_ns, evidence.offset_ns) == (200_000, None, -1_500)
    assert evidence.estimate_95_ns == 900
    reference = evidence.reference
    assert (reference.identity, reference.source_name, reference.stratum) == ("ntp:192.0.2.1", "ntp.example.net", 2)
    assert reference.traceability is Traceability.NO
    assert [fault.code for fault in evidence.faults] == [ReasonCode.SKEW_TOO_LARGE]
    assert evidence.leap_in_progress
    assert evidence.steering_id == "chronyd-1"
    assert "recording" in evidence.assumptions[0]


def test_what_is_left_out_is_unknown(tmp_path: Path) -> None:
    evidence = Replay(tmp_path, GOOD).read()
    assert isinstance(evidence, Evidence)
    assert (evidence.bound_ns, evidence.utc_bound_ns, evidence.offset_ns) == (200_000, 200_000, None)
    assert evidence.reference.identity is None
    assert evidence.reference.traceability is Traceability.UNKNOWN
    assert evidence.faults == ()


def test_lines_follow_each_other_in_time_and_the_last_one_stays(tmp_path: Path) -> None:
    replay = Replay(
        tmp_path, GOOD, '{"after_s": 1.5, "silence": "unplugged"}', "", '{"after_s": 3, "bound_ns": 300000}'
    )
    bounds: list[int | str | None] = []
    for after_s in (0, 1, 1.5, 2.9, 3, 10_000):
        seen = replay.read(after_s)
        bounds.append(seen.bound_ns if isinstance(seen, Evidence) else seen.reason.detail)
        assert seen.as_of_boot_ns == replay.now_ns
    assert bounds == [200_000, 200_000, "unplugged", "unplugged", 300_000, 300_000]


def test_the_replay_starts_with_the_first_reading(tmp_path: Path) -> None:
    replay = Replay(tmp_path, GOOD, '{"after_s": 2, "bound_ns": 300000}')
    first = replay.read(1000)
    assert isinstance(first, Evidence)
    assert first.bound_ns == 200_000


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("{", "Expecting"),
        ("[]", "not a JSON object"),
        ("[" * 100_000, "recursion"),
        ("{}", "after_s is missing"),
        ('{"after_s": 1}', "bound_ns or silence is missing"),
        ('{"after_s": 1, "bound_ns": 0}', "bound_ns is 0"),
        ('{"after_s": 1, "bound_ns": -5}', "bound_ns is -5"),
        ('{"after_s": 1, "bound_ns": 1.5}', "bound_ns is 1.5"),
        ('{"after_s": 1, "bound_ns": true}', "bound_ns is True"),
        ('{"after_s": 1, "bound_ms": 1}', "unknown key 'bound_ms'"),
        ('{"after_s": NaN, "bound_ns": 1}', "after_s is nan"),
        ('{"after_s": -1, "bound_ns": 1}', "after_s is -1"),
        ('{"after_s": "1", "bound_ns": 1}', "after_s is '1'"),
        ('{"after_s": 0, "bound_ns": 1}', "after_s must rise"),
        ('{"after_s": 1, "bound_ns": 1, "silence": "x"}', "silence excludes"),
        ('{"after_s": 1, "silence": 5}', "silence is 5"),
        ('{"after_s": 1, "bound_ns": 1, "stratum": 16}', "stratum is 16"),
        ('{"after_s": 1, "bound_ns": 1, "identity": 7}', "identity is 7"),
        ('{"after_s": 1, "bound_ns": 1, "traceability": "maybe"}', "traceability is 'maybe'"),
        ('{"after_s": 1, "bound_ns": 1, "faults": ["NONE"]}', "faults holds 'NONE'"),
        ('{"after_s": 1, "bound_ns": 1, "faults": "ISLAND"}', "faults is 'ISLAND'"),
        ('{"after_s": 1, "bound_ns": 1, "leap_in_progress": 1}', "leap_in_progress is 1"),
    ],
)
def test_a_bad_line_is_named_with_file_and_number(tmp_path: Path, line: str, part: str) -> None:
    with pytest.raises(ConfigError) as error:
        Replay(tmp_path, GOOD, line)
    assert f"{tmp_path / 'recording.jsonl'}, line 2: " in str(error.value)
    assert part in str(error.value)


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.jsonl: the recording cannot be read"):
        RecordedSource(tmp_path / "absent.jsonl")
    (tmp_path / "latin").write_bytes(b"\xff\n")
    with pytest.raises(ConfigError, match="latin: the recording cannot be read"):
        RecordedSource(tmp_path / "latin")
    with pytest.raises(ConfigError, match="empty"):
        Replay(tmp_path, "", " ")
    with pytest.raises(ConfigError, match=r"line 1: after_s of the first line must be 0"):
        Replay(tmp_path, '{"after_s": 1, "bound_ns": 1}')


@given(st.binary(max_size=200))
def test_no_bytes_fail_in_another_way(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any-bytes"
    file.write_bytes(content)
    # Random bytes are never a recording: whatever they are, the file is named.
    with pytest.raises(ConfigError, match="any-bytes"):
        RecordedSource(file)
