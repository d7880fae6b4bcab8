"""The support bundle: collectors that misbehave, what is packed, where it is written."""

import io
import json
import tarfile
import threading
from pathlib import Path

import pytest
from clockgated.ctl import bundle, bundle_command, bundle_entries
from clockgated.ctl.bundle import BundleError, Collected, Collector, NothingToCollectError
from hypothesis import given
from hypothesis import strategies as st


def unpacked(data: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert {member.mode for member in archive} == {0o600}
        found = {member.name: archive.extractfile(member) for member in archive}
        return {name: file.read().decode() for name, file in found.items() if file is not None}


def quiet(_: str) -> None:
    """Progress that nobody reads."""


def test_a_collector_that_hangs_is_left_behind_and_the_next_ones_run() -> None:
    over = threading.Event()

    def hang() -> str:
        over.wait(30)
        return "late"

    try:
        found = bundle.collect_all([Collector("hangs", hang, 0.1), Collector("answers", lambda: "here")], quiet)
    finally:
        over.set()
    assert found[0].text is None
    assert found[0].problem == "no answer within 0.1 s"
    assert (found[1].text, found[1].problem) == ("here", None)


@pytest.mark.parametrize(
    "error", [OSError(13, "Permission denied"), NothingToCollectError("no such file"), ValueError("not a number")]
)
def test_a_collector_that_fails_leaves_its_reason(error: Exception) -> None:
    def fail() -> str:
        raise error

    (found,) = bundle.collect_all([Collector("fails", fail)], quiet)
    assert found.text is None
    assert found.problem == str(error)


def test_progress_names_each_collector_and_what_it_lacks() -> None:
    said: list[str] = []

    def fail() -> str:
        raise NothingToCollectError("not installed")

    bundle.collect_all([Collector("a.txt", lambda: ""), Collector("b.txt", fail)], said.append)
    assert said == ["collecting a.txt (1 of 2)", "collecting b.txt (2 of 2)", "no b.txt: not installed"]


def test_packed_files_are_redacted_and_the_manifest_says_why_one_is_missing() -> None:
    found = (
        Collected("status.json", '{"password": "abcdefgh"}', None, 0.25),
        Collected("journal.txt", None, "GET https://user:abcdefgh@h/x failed", 5.0),
    )
    files = unpacked(bundle.pack(found, "bundle", 0))
    assert set(files) == {"bundle/README.txt", "bundle/MANIFEST.json", "bundle/status.json"}
    assert not any("abcdefgh" in text for text in files.values())
    entries = json.loads(files["bundle/MANIFEST.json"])["collectors"]
    assert [(one["name"], one["problem"] is None) for one in entries] == [("status.json", True), ("journal.txt", False)]


def test_of_a_flood_the_end_is_kept_and_no_secret_is_cut_open() -> None:
    secret = "Zq" + "s" * 40
    text = f"token={secret}\n" + "x" * (bundle.MOST_BYTES - 20)
    packed = unpacked(bundle.pack([Collected("flood.txt", text, None, 0.1)], "b", 0))["b/flood.txt"]
    assert len(packed) <= bundle.MOST_BYTES
    assert "sss" not in packed


def test_the_file_is_private_whole_and_leaves_no_draft(tmp_path: Path) -> None:
    bundle.write(tmp_path / "one.tar.gz", b"data")
    assert [path.name for path in tmp_path.iterdir()] == ["one.tar.gz"]
    assert (tmp_path / "one.tar.gz").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "one.tar.gz").read_bytes() == b"data"


def test_a_file_or_link_that_is_there_already_is_never_written_over(tmp_path: Path) -> None:
    kept, link = tmp_path / "kept", tmp_path / "link"
    kept.write_text("kept")
    link.symlink_to(tmp_path / "elsewhere")
    for path in (kept, link):
        with pytest.raises(BundleError, match="exists already; wanted a new name"):
            bundle.check_target(path)
        with pytest.raises(BundleError, match="cannot be written"):
            bundle.write(path, b"data")
    assert kept.read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "link"]


def test_a_folder_that_is_not_there_is_told_before_anything_is_collected(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no such folder; create it, or name another with --output"):
        bundle.check_target(tmp_path / "none/one.tar.gz")


@given(st.text())
def test_any_host_name_makes_a_plain_file_name(host: str) -> None:
    name = bundle_command.bundle_name(host, 1_700_000_000)
    assert name.startswith("clockgate-support-")
    assert name.endswith("-20231114T221320Z")
    assert "/" not in name
    assert len(name) < 120


def test_output_names_a_folder_or_a_file(tmp_path: Path) -> None:
    assert bundle_command.target_path(tmp_path, "n") == tmp_path / "n.tar.gz"
    assert bundle_command.target_path(tmp_path / "x.tgz", "n") == tmp_path / "x.tgz"
    assert bundle_command.target_path(None, "n") == Path.cwd() / "n.tar.gz"


@pytest.mark.parametrize(
    ("address", "asked"),
    [
        (None, "http://127.0.0.1:9775/metrics"),
        ("127.0.0.2", "http://127.0.0.2:9775/metrics"),
        ("127.0.0.2:1", "http://127.0.0.2:1/metrics"),
        ("[::1]", "http://[::1]:9775/metrics"),
    ],
)
def test_metrics_are_asked_for_where_the_daemon_serves_them(tmp_path: Path, address: str | None, asked: str) -> None:
    config = tmp_path / "clockgated.toml"
    config.write_text("" if address is None else f'[metrics]\naddress = "{address}"\n')
    assert bundle_entries.metrics_url(config) == asked


@pytest.mark.parametrize(("address", "words"), [("", "no metrics are served"), ("localhost:80", "no address")])
def test_without_an_address_the_bundle_says_why_it_has_no_metrics(tmp_path: Path, address: str, words: str) -> None:
    config = tmp_path / "clockgated.toml"
    config.write_text(f'[metrics]\naddress = "{address}"\n')
    with pytest.raises(NothingToCollectError, match=words):
        bundle_entries.metrics_url(config)
