import json
from dataclasses import replace

import pytest
from clockgate_trainer.checkpoint.agreed_time import agree_on_time
from clockgate_trainer.checkpoint.files import FileDigest
from clockgate_trainer.checkpoint.layout import STATE_FILES
from clockgate_trainer.checkpoint.manifest import (
    AdapterRepair,
    AgreedTime,
    Disruption,
    Manifest,
    ManifestError,
    RankReading,
    content_id,
    from_json,
    to_json,
)
from clockgate_trainer.checkpoint.record import Circumstances, last_epochs, make_manifest
from clockgate_trainer.gate.model import ABSENT, SaveVerdict, StepVerdict
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checkpoints import make_decision, make_row, make_state

SHA = "0123456789abcdef" * 4
FILES = {name: FileDigest(SHA, 10) for name in (*STATE_FILES, "adapter_model.safetensors", "sub/folder.bin")}


def make_reading(rank: int) -> RankReading:
    return RankReading(rank, "PROCEED", "SAVE", (), 1_000, None, 7, 3)


def make_manifest_of(ranks: int = 2) -> Manifest:
    return Manifest(
        step=10,
        world_size=ranks,
        files=FILES,
        adapter_sha256=SHA,
        agreed_time=None,
        agreed_time_absent_because="nobody waited",
        unverified_wall_ns=1_700_000_000_000_000_000,
        cluster_bound_ns=2_000,
        bound_basis="relative",
        readings=tuple(make_reading(rank) for rank in range(ranks)),
        created_by="clockgate_trainer 0.1.0",
    )


def test_a_manifest_reads_back_as_it_was_written() -> None:
    manifest = make_manifest_of()
    assert from_json(to_json(manifest)) == manifest


def test_an_agreed_time_reads_back() -> None:
    agreed = AgreedTime(wall_ns=1_700_000_000_000_000_000, bound_ns=1_000, basis="utc", waited_out=True)
    manifest = replace(make_manifest_of(), agreed_time=agreed, agreed_time_absent_because=None, unverified_wall_ns=None)
    assert from_json(to_json(manifest)) == manifest


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("format_version", 1, "format_version is 1, wanted 2"),
        ("step", "10", 'step is "10", wanted a whole number'),
        ("step", True, "step is true"),
        ("step", -1, "step is -1, wanted a whole number from 0"),
        ("step", 1.0, "step is 1.0"),
        ("world_size", 3, "readings"),
        ("world_size", 10**18, "readings"),
        ("files", {}, "optimizer.pt among them"),
        ("files", [], "files is a list of 0, wanted an object"),
        ("adapter_sha256", SHA.upper(), "adapter_sha256"),
        ("agreed_time_absent_because", None, "agreed_time_absent_because is null"),
        ("unverified_wall_ns", None, "unverified_wall_ns"),
        ("agreed_time", {"wall_ns": 1, "bound_ns": -1, "basis": "utc"}, "agreed_time.bound_ns is -1"),
        ("agreed_time", {"wall_ns": 1, "bound_ns": 1, "basis": "none"}, "agreed_time.basis"),
        ("agreed_time", {"wall_ns": 1, "bound_ns": 1, "basis": "utc", "waited_out": 1}, "agreed_time.waited_out is 1"),
        ("agreed_time", {"wall_ns": 1, "bound_ns": 1, "basis": "utc", "waited_out": True}, "not both"),
        ("disruptions", [{"rank": 0, "epoch_before": 1, "epoch_now": None}], "epoch_now is null"),
        ("adapter_repair", {"source_rank": 0, "ranks": [1, True]}, r"adapter_repair.ranks\[1\] is true"),
        ("adapter_repair", {"source_rank": 0, "ranks": 1}, "adapter_repair.ranks is 1"),
        ("cluster_bound_ns", None, "bound_basis"),
        ("bound_basis", "guess", 'bound_basis is "guess", wanted one of relative, utc, none'),
        ("readings", [{}, {}], r"readings\[0\].rank is missing"),
        ("readings", "none", "readings is"),
        ("created_by", "", "created_by"),
        ("surprise", 1, "surprise is 1, wanted no such field"),
    ],
)
def test_a_wrong_field_is_named_with_its_value(field: str, value: object, told: str) -> None:
    content = {**json.loads(to_json(make_manifest_of())), field: value}
    with pytest.raises(ManifestError, match=rf"^run/manifest.json: .*{told}"):
        from_json(json.dumps(content).encode(), "run/manifest.json")


@pytest.mark.parametrize("field", sorted(json.loads(to_json(make_manifest_of()))))
def test_a_missing_field_is_named(field: str) -> None:
    content = json.loads(to_json(make_manifest_of()))
    del content[field]
    with pytest.raises(ManifestError, match=f"field {field} is missing"):
        from_json(json.dumps(content).encode())


@pytest.mark.parametrize("name", ["/etc/shadow", "../other", "a//b", "a/./b", "", "manifest.json", "a\0b", "\ud800"])
def test_a_file_name_that_leaves_the_folder_is_refused(name: str) -> None:
    content = json.loads(to_json(make_manifest_of()))
    content["files"][name] = {"sha256": SHA, "bytes": 1}
    with pytest.raises(ManifestError, match="files"):
        from_json(json.dumps(content).encode())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe\x00",
        b'{"step": NaN}',
        b'{"step": 1, "step": 2}',
        b'{"step": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
    ],
)
def test_what_is_no_json_object_is_refused(content: bytes) -> None:
    with pytest.raises(ManifestError, match=r"manifest\.json: "):
        from_json(content)


@pytest.mark.parametrize("name", ["\ud800", "\x1b[31m", "two\nlines", "long" * 1000])
def test_a_field_is_named_so_that_a_terminal_can_show_it(name: str) -> None:
    surprise = json.dumps({**json.loads(to_json(make_manifest_of())), name: 1})
    twice = f"{{{json.dumps(name)}: 1, {json.dumps(name)}: 1}}"
    for content in (surprise, twice):
        with pytest.raises(ManifestError, match=r"^\S") as caught:
            from_json(content.encode())
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def read_or_complaint(content: dict[str, object]) -> bool:
    """Whether it was read, or refused with a field named; NaN makes it no JSON."""
    try:
        from_json(json.dumps(content).encode())
    except ManifestError as error:
        return "field " in str(error) or "JSON" in str(error)
    return True


GOOD = json.loads(to_json(make_manifest_of(1)))


@settings(deadline=None, max_examples=50)
@given(st.binary())
def test_no_bytes_raise_anything_but_a_manifest_error(content: bytes) -> None:
    with pytest.raises(ManifestError):
        from_json(content)


@settings(deadline=None, max_examples=50)
@given(JSON)
def test_no_json_raises_anything_but_a_manifest_error(value: object) -> None:
    with pytest.raises(ManifestError):
        from_json(json.dumps(value).encode())


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.sampled_from(sorted(GOOD)), JSON, max_size=3))
def test_a_changed_manifest_is_read_or_refused_never_worse(changes: dict[str, object]) -> None:
    assert read_or_complaint({**GOOD, **changes})


@settings(deadline=None, max_examples=50)
@given(st.sampled_from(["files", "readings"]), st.data())
def test_a_changed_entry_is_read_or_refused_never_worse(table: str, data: st.DataObject) -> None:
    content = json.loads(to_json(make_manifest_of(1)))
    entry = content["files"]["optimizer.pt"] if table == "files" else content["readings"][0]
    entry[data.draw(st.sampled_from(sorted(entry)))] = data.draw(JSON)
    assert read_or_complaint(content)


def test_disruptions_and_a_repair_read_back() -> None:
    manifest = replace(make_manifest_of(), disruptions=(Disruption(1, 3, 4),), adapter_repair=AdapterRepair(0, (1, 2)))
    assert from_json(to_json(manifest)) == manifest


def test_two_checkpoints_that_resume_the_same_have_one_content() -> None:
    manifest = make_manifest_of()
    other_words = {**FILES, "README.md": FileDigest(SHA[::-1], 3)}
    same = replace(manifest, files=other_words, unverified_wall_ns=1, created_by="another")
    assert content_id(same) == content_id(manifest)
    other_states = {**FILES, "ranks.pt": FileDigest(SHA[::-1], 10)}
    for other in (
        replace(manifest, step=11),
        replace(manifest, adapter_sha256=SHA[::-1]),
        replace(manifest, files=other_states),
    ):
        assert content_id(other) != content_id(manifest)


def test_the_decision_of_the_ranks_becomes_the_record_of_their_clocks() -> None:
    rows = (
        make_row(relative_bound_ns=1_000),
        make_row(
            relative_bound_ns=ABSENT,
            reference_hash=ABSENT,
            epoch=ABSENT,
            reasons=1 << 2 | 1 << 35,
            save_verdict=SaveVerdict.SAVE_UNTIMED,
            step_verdict=StepVerdict.WARN,
        ),
    )
    decision = make_decision(5, *rows)
    circumstances = Circumstances(decision, agree_on_time(decision, decision), AdapterRepair(0, (1,)))
    manifest = make_manifest(make_state(5, world_size=2), FILES, SHA, circumstances, {0: 2, 1: 8})
    assert manifest.agreed_time is None
    assert manifest.unverified_wall_ns == rows[0].sent_wall_ns
    assert manifest.agreed_time_absent_because is not None
    assert "SAVE_UNTIMED" in manifest.agreed_time_absent_because
    assert (manifest.cluster_bound_ns, manifest.bound_basis) == (None, "none")
    good, bad = manifest.readings
    assert (good.relative_bound_ns, good.reference_hash, good.epoch, good.reasons) == (1_000, 7, 3, ())
    assert (bad.relative_bound_ns, bad.utc_bound_ns, bad.reference_hash, bad.epoch) == (None, None, None, None)
    assert (bad.step_verdict, bad.save_verdict) == ("WARN", "SAVE_UNTIMED")
    assert (manifest.disruptions, manifest.adapter_repair) == ((Disruption(0, 2, 3),), AdapterRepair(0, (1,)))
    assert from_json(to_json(manifest)) == manifest


def test_the_last_known_epoch_of_each_rank_counts() -> None:
    newest, older, oldest = (make_manifest_of() for _ in range(3))
    newest = replace(newest, readings=(replace(make_reading(0), epoch=None), make_reading(1)))
    older = replace(older, readings=(make_reading(0), replace(make_reading(1), epoch=1)))
    assert last_epochs((newest, older), 2) == {0: 3, 1: 3}
    assert last_epochs((oldest,), 3) == {}
    assert last_epochs((), 2) == {}
