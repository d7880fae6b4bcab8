"""clockgatectl's words: addresses and values in, requests and sentences out. No daemon runs here."""

import subprocess
import sys
from pathlib import Path

import pytest
from clockgate.v1 import admin_pb2
from clockgated.ctl import address, drill
from clockgated.ctl.main import main
from hypothesis import given
from hypothesis import strategies as st
from support.daemon import environment


@pytest.mark.parametrize(
    ("flag", "variable", "path"),
    [
        (None, None, "/run/clockgate/clockgate.sock"),
        (None, "/v.sock", "/v.sock"),
        ("/f.sock", "/v.sock", "/f.sock"),
        ("unix:/f.sock", None, "/f.sock"),
        ("unix:///f.sock", None, "/f.sock"),
        (None, "unix:rel.sock", "rel.sock"),
        ("./rel:1.sock", None, "rel:1.sock"),
        # What is empty was not given: to the trainer too.
        (None, "", "/run/clockgate/clockgate.sock"),
        ("", "/v.sock", "/v.sock"),
        ("", "", "/run/clockgate/clockgate.sock"),
    ],
)
def test_address_is_the_flag_then_the_variable_then_the_default(
    flag: str | None, variable: str | None, path: str
) -> None:
    environ = {} if variable is None else {"CLOCKGATE_ADDRESS": variable}
    assert address.read_address(flag, environ).place.path == Path(path)


@pytest.mark.parametrize(
    "text", ["unix:", "host:0", "host:65536", "host:٣", "dns:host", "ho st:1", ":1", "[::1:9776", "::1"]
)
def test_address_that_leads_nowhere_is_refused(text: str) -> None:
    with pytest.raises(address.AddressError, match="wanted the path of a socket, unix:PATH, or HOST:PORT"):
        address.read_address(text, {})


@pytest.mark.parametrize(
    ("text", "is_local"),
    [
        ("127.0.0.1:9776", True),
        ("127.8.8.8:9776", True),
        ("[::1]:9776", True),
        ("localhost:9776", True),
        ("ipv4:127.0.0.1:9776", True),
        ("node7:9776", False),
        ("dns:///node7:9776", False),
        ("0.0.0.0:9776", False),
        ("[::ffff:10.0.0.1]:9776", False),
        ("localhost.example:9776", False),
    ],
)
def test_nothing_is_asked_in_the_clear_beyond_this_machine(text: str, is_local: bool) -> None:
    asked = address.read_address(text, {})
    assert (asked.place.path, asked.place.is_local) == (None, is_local)
    if is_local:
        address.connect(asked).close()
    else:
        with pytest.raises(address.AddressError, match="set CLOCKGATE_TLS_CA, CLOCKGATE_TLS_CERTIFICATE, CLOCKGATE_"):
            address.connect(asked)


def test_one_file_of_tls_asks_for_the_others_also_on_this_machine(tmp_path: Path) -> None:
    environ = {"CLOCKGATE_TLS_CA": str(tmp_path / "ca.pem"), "CLOCKGATE_TLS_KEY": ""}
    with pytest.raises(address.AddressError, match=r"set CLOCKGATE_TLS_CERTIFICATE, CLOCKGATE_TLS_KEY$"):
        address.connect(address.read_address("127.0.0.1:9776", environ))
    whole = environ | {"CLOCKGATE_TLS_CERTIFICATE": "/none.pem", "CLOCKGATE_TLS_KEY": "/none.key"}
    with pytest.raises(address.AddressError, match=r"/none\.pem: cannot be read"):
        address.connect(address.read_address("127.0.0.1:9776", whole))
    # A socket is this machine's own: nobody needs TLS there.
    address.connect(address.read_address("/a.sock", environ)).close()


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_an_address_error(text: str) -> None:
    try:
        assert str(address.read_address(text, {}))
    except address.AddressError as error:
        assert "wanted" in str(error) or "bytes long" in str(error)  # noqa: PT017 - both outcomes are right


def test_admin_address_does_not_follow_the_variable() -> None:
    assert str(address.admin_address(None)) == str(address.admin_address("")) == "/run/clockgate/admin/admin.sock"
    assert str(address.admin_address("unix:/a")) == "/a"
    with pytest.raises(address.AddressError, match="it is not served by TCP"):
        address.admin_address("127.0.0.1:9776")


@pytest.mark.parametrize(
    ("text", "value_ns"),
    [
        ("200ms", 200_000_000),
        ("-200ms", -200_000_000),
        (f"{drill.MINUS}200ms", -200_000_000),
        ("+3s", 3_000_000_000),
        ("1.5us", 1_500),
        ("1.5µs", 1_500),
        ("7ns", 7),
        ("0s", 0),
    ],
)
def test_values_carry_their_unit(text: str, value_ns: int) -> None:
    assert drill.duration_ns(text) == value_ns


@pytest.mark.parametrize("text", ["200", "ms", "", "1e3ms", "nans", "1 ms", "1m", "--1s", "٣s"])
def test_values_without_a_number_or_a_unit_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="wanted a number with a unit, for instance 200ms"):
        drill.duration_ns(text)


@given(st.text(max_size=20))
def test_any_text_is_a_value_or_a_value_error(text: str) -> None:
    try:
        assert isinstance(drill.duration_ns(text), int)
    except ValueError as error:
        assert "wanted" in str(error)  # noqa: PT017 - both outcomes are right


def test_requests_name_their_fault() -> None:
    freeze = drill.request("freeze", 0, 5)
    assert (freeze.WhichOneof("fault"), freeze.duration_ns) == ("freeze_source", 5)
    assert drill.request("offset", -3, 5).add_offset.offset_ns == -3
    assert drill.request("step", 9, 0).step_clock.jump_ns == 9
    assert drill.request("clear", 0, 0) == admin_pb2.DrillRequest(clear=admin_pb2.Clear())


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["drill"],
        ["drill", "offset", "200ms"],
        ["drill", "offset", "200", "--for", "3s"],
        ["drill", "freeze", "--for", "3"],
        ["drill", "melt"],
        ["status", "--yaml"],
        ["epochs", "--watch"],
        ["leases", "--watch"],
        ["lease"],
        ["lease", "break"],
    ],
)
def test_wrong_usage_ends_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: clockgatectl" in capsys.readouterr().err


def test_address_that_must_not_be_asked_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--address", "host:0", "status"]) == 2
    assert 'address "host:0": wanted the path of a socket' in capsys.readouterr().err
    assert main(["--address", "host:1", "status"]) == 2
    assert '"host:1" is asked with TLS' in capsys.readouterr().err


def test_missing_socket_ends_with_3_and_the_next_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--address", str(tmp_path / "no.sock"), "status"]) == 3
    said = capsys.readouterr().err
    assert f"{tmp_path / 'no.sock'}: no socket there; start clockgated" in said


@pytest.mark.parametrize("words", [["drill", "clear"], ["leases"], ["lease", "break", "1"]])
def test_missing_admin_socket_ends_with_3(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([words[0], "--admin-address", str(tmp_path / "no.sock"), *words[1:]]) == 3
    assert "no.sock: no socket there" in capsys.readouterr().err


def test_version_is_the_package_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("clockgatectl 0.")


def test_client_imports_nothing_of_the_daemon_but_small_values_and_what_looks_at_a_host_without_it() -> None:
    code = "import sys, clockgated.ctl.main; print(*sorted(m for m in sys.modules if m.startswith('clockgated')))"
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True, timeout=30
    )
    rooms = {".".join(name.split(".")[:2]) for name in ran.stdout.split()}
    small = {"clockgated", "clockgated.ctl", "clockgated.units", "clockgated.errors", "clockgated.config_values"}
    # For doctor and support-bundle, which also work with the daemon dead, and for wait, which tells systemd.
    host = {f"clockgated.{name}" for name in ("durable", "host", "manage", "supervise", "systemd", "timex")}
    assert rooms == small | host


@pytest.mark.parametrize("word", ["-3", "-0.5", "-3s", "--json", "3s"])
def test_a_negative_number_without_a_unit_reaches_its_command_as_it_is(word: str) -> None:
    (shown,) = drill.protect_minus([word])
    assert shown == ("\u22123s" if word == "-3s" else word)
