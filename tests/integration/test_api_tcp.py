"""The API by TCP: who is served, with which certificates, and what never is. Under both runtimes."""

import shutil
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from clockgate import dial
from clockgate.pem import PemFiles
from clockgate.v1 import admin_pb2, admin_pb2_grpc, clock_pb2, clock_pb2_grpc, tuning_pb2, tuning_pb2_grpc
from clockgate.wire import stubs
from clockgate_trainer.gate.address import resolve_address, resolve_tls
from clockgate_trainer.gate.model import Limits
from clockgate_trainer.gate.sidecar import Sidecar
from clockgated.main import main
from support.certificates import Authority, authority
from support.daemon import Clockgated, clockgated, ctl, run_to_end, toml
from support.oldest import oldest_python
from support.ports import free_port

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

RECORDED = '{"after_s": 0, "bound_ns": 200000, "identity": "ntp:192.0.2.1", "stratum": 2}\n'
STATUS = grpc.StatusCode


def config(folder: Path, *api: str) -> str:
    (folder / "recorded.jsonl").write_text(RECORDED)
    text = toml(
        folder,
        clock='source = "recorded"\npoll_interval_s = 0.1\nsync_cycles = 1',
        extra=f'[recorded]\nfile = "{folder / "recorded.jsonl"}"',
    )
    return text.replace("[folders]", "\n".join((*api, "[folders]")))


def tls_lines(files: PemFiles, client_ca: Path) -> tuple[str, ...]:
    return (
        f'tls_certificate = "{files.certificate}"',
        f'tls_key = "{files.key}"',
        f'tls_client_ca = "{client_ca}"',
        'tls_clients = ["trainer", "ops.example"]',
    )


@dataclass(frozen=True)
class Served:
    daemon: Clockgated
    address: dial.Address
    files: PemFiles
    ca: Authority


@pytest.fixture(scope="module", params=["current", "oldest"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    python = oldest_python() if request.param == "oldest" else Path(sys.executable)
    folder = tmp_path_factory.mktemp("tcp")
    ca, port = authority(folder / "ca"), free_port()
    files = ca.issue("node1", into=folder / "tls")
    text = config(folder, f'tcp = "127.0.0.1:{port}"', *tls_lines(files, ca.certificate))
    with clockgated(folder, text, python=python) as daemon:
        yield Served(daemon, dial.parse_address(f"localhost:{port}"), files, ca)


def brought(files: PemFiles, **changes: Any) -> dial.Tls:
    return dial.Tls(**{"ca": files.ca, "certificate": files.certificate, "key": files.key, **changes})


@contextmanager
def channel(served: Served, tls: dial.Tls) -> Iterator[grpc.Channel]:
    with dial.open_channel(served.address, tls, (("grpc.use_local_subchannel_pool", 1),)) as made:
        yield made


def get_reading(made: grpc.Channel) -> clock_pb2.Reading:
    return clock_pb2_grpc.ClockStub(made).GetReading(clock_pb2.GetReadingRequest(), timeout=10).reading


def refusal(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    return error.code(), error.details()


def test_a_known_client_reads_and_never_reaches_what_changes_the_node(served: Served) -> None:
    with channel(served, brought(served.ca.issue("trainer"))) as made:
        assert get_reading(made).state == clock_pb2.CLOCK_STATE_SYNCHRONIZED
        drill = admin_pb2.DrillRequest(clear=admin_pb2.Clear())
        assert refusal(lambda: admin_pb2_grpc.AdminStub(made).Drill(drill, timeout=10))[0] == STATUS.UNIMPLEMENTED
        tuning = tuning_pb2_grpc.TuningStub(made)
        for call in (
            lambda: tuning.Apply(tuning_pb2.ApplyRequest(plan_hash="x"), timeout=10),
            lambda: tuning.Revert(tuning_pb2.RevertRequest(), timeout=10),
        ):
            code, details = refusal(call)
            assert (code, "admin socket" in details) == (STATUS.PERMISSION_DENIED, True)
        service = stubs.REFLECTION_SERVICES[0]
        asked = iter([stubs.reflection_request(service)(list_services="")])
        (answer,) = stubs.ReflectionStub(made, service).ServerReflectionInfo(asked, timeout=10)
        names = {one.name for one in answer.list_services_response.service}
        assert "clockgate.v1.Admin" not in names
        assert "clockgate.v1.Clock" in names


def test_a_name_beside_the_common_one_counts_and_an_unknown_one_is_refused(served: Served) -> None:
    with channel(served, brought(served.ca.issue("other", of="DNS:ops.example"))) as made:
        assert get_reading(made).sequence > 0
    with channel(served, brought(served.ca.issue("stranger"))) as made:
        code, details = refusal(lambda: get_reading(made))
        assert (code, "tls_clients" in details) == (STATUS.PERMISSION_DENIED, True)
        watch: Any = clock_pb2_grpc.ClockStub(made).WatchReadings
        assert refusal(lambda: next(watch(clock_pb2.WatchReadingsRequest(), timeout=10)))[0] == code


def test_nobody_is_served_without_a_certificate_of_the_ca(served: Served, tmp_path: Path) -> None:
    foreign = authority(tmp_path / "foreign").issue("trainer")
    with channel(served, brought(foreign, ca=served.ca.certificate)) as made:
        assert refusal(lambda: get_reading(made))[0] == STATUS.UNAVAILABLE
    trusting = grpc.ssl_channel_credentials(served.ca.certificate.read_bytes())
    with grpc.secure_channel(served.address.target, trusting) as made:
        assert refusal(lambda: get_reading(made))[0] == STATUS.UNAVAILABLE
    with grpc.insecure_channel(served.address.target) as made:
        assert refusal(lambda: get_reading(made))[0] == STATUS.UNAVAILABLE
    # A client, in turn, asks nobody whose certificate is of another CA or for another name.
    known = served.ca.issue("trainer")
    with channel(served, brought(known, ca=foreign.ca)) as made:
        assert refusal(lambda: get_reading(made))[0] == STATUS.UNAVAILABLE
    with channel(served, brought(known, name="node2")) as made:
        assert refusal(lambda: get_reading(made))[0] == STATUS.UNAVAILABLE


def shown_certificate(served: Served) -> bytes:
    """What the server shows to a connection that begins now."""
    client = served.ca.issue("trainer")
    context = ssl.create_default_context(cafile=str(served.ca.certificate))
    context.load_cert_chain(client.certificate, client.key)
    context.set_alpn_protocols(["h2"])
    port = int(served.address.target.rpartition(":")[2])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        shown = secured.getpeercert(binary_form=True)
        assert shown is not None
        return shown


def pem_to_der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def wait_for_log(daemon: Clockgated, words: str, times: int = 1) -> None:
    due = time.monotonic() + 20
    while daemon.log.read_text().count(words) < times:
        assert time.monotonic() < due, daemon.log.read_text()
        time.sleep(0.05)


def test_new_files_are_used_by_new_connections_and_broken_ones_by_none(served: Served, tmp_path: Path) -> None:
    before = pem_to_der(served.files.certificate)
    with channel(served, brought(served.ca.issue("trainer"))) as made:
        stream: Any = clock_pb2_grpc.ClockStub(made).WatchReadings(clock_pb2.WatchReadingsRequest(), timeout=60)
        next(stream)
        assert shown_certificate(served) == before
        renewed = served.ca.issue("node1", into=tmp_path)
        # The certificate first: until its key follows, the pair does not fit.
        shutil.copy(renewed.certificate, tmp_path / "staged.pem")
        (tmp_path / "staged.pem").replace(served.files.certificate)
        wait_for_log(served.daemon, f"{served.files.key}: is not the key of {served.files.certificate}")
        assert shown_certificate(served) == before
        renewed.key.replace(served.files.key)
        assert shown_certificate(served) == pem_to_der(served.files.certificate) != before
        wait_for_log(served.daemon, "new certificates are in use for new connections")
        served.files.certificate.write_bytes(b"")
        wait_for_log(served.daemon, "no PEM certificate and PEM key; the certificates in use stay")
        assert shown_certificate(served) == pem_to_der(renewed.certificate)
        shutil.copy(renewed.certificate, served.files.certificate)
        wait_for_log(served.daemon, "new certificates are in use for new connections", times=2)
        sequence = next(stream).reading.sequence
        assert next(stream).reading.sequence > sequence, "the stream of the old certificate goes on"
        stream.cancel()
    log = served.daemon.log.read_text()
    assert "PRIVATE KEY" not in log
    assert "Traceback" not in log


@pytest.mark.parametrize("served", ["current"], indirect=True)
def test_programs_ask_a_daemon_with_tls(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    files, target = served.ca.issue("trainer"), served.address.target
    variables = {
        "CLOCKGATE_TLS_CA": str(files.ca),
        "CLOCKGATE_TLS_CERTIFICATE": str(files.certificate),
        "CLOCKGATE_TLS_KEY": str(files.key),
    }
    asked = ctl("--address", target, "status", **variables)
    assert (asked.returncode, asked.stdout[:12]) == (0, "SYNCHRONIZED"), asked.stderr
    numeric = target.replace("localhost", "127.0.0.1")
    flags = ["--tls-ca", str(files.ca), "--tls-certificate", str(files.certificate), "--tls-key", str(files.key)]
    asked = ctl("--address", numeric, *flags, "--tls-name", "localhost", "status")
    assert asked.returncode == 0, asked.stderr
    asked = ctl("--address", target, *flags, "--tls-name", "node2", "status")
    assert asked.returncode == 3
    assert "see that [api] tcp is set there" in asked.stderr
    stranger = served.ca.issue("stranger")
    asked = ctl("--address", target, *flags[:2], "--tls-certificate", str(stranger.certificate), "--tls-key",
                str(stranger.key), "status")  # fmt: skip
    assert (asked.returncode, "tls_clients" in asked.stderr) == (3, True)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    address = resolve_address(target, {})
    sidecar = Sidecar(address, Limits(1, 2), job="j", rank=0, tls=resolve_tls(address, variables), deadline_s=5)
    try:
        sidecar.ask(0)
        assert sidecar.await_answer(20)
    finally:
        sidecar.close()


@pytest.mark.parametrize("served", ["current"], indirect=True)
def test_a_port_that_is_taken_is_told_and_nothing_is_shared(served: Served, tmp_path: Path) -> None:
    port = served.address.target.rpartition(":")[2]
    text = config(tmp_path, f'tcp = "127.0.0.1:{port}"', *tls_lines(served.files, served.ca.certificate))
    (tmp_path / "second.toml").write_text(text)
    ran = run_to_end("--config", tmp_path / "second.toml")
    assert ran.returncode == 78
    assert f'[api] tcp = "127.0.0.1:{port}": cannot be served' in ran.stderr


def test_an_address_that_is_not_there_yet_is_no_end_for_systemd(tmp_path: Path) -> None:
    # 192.0.2.0/24 is for documentation: no machine has it.
    ca = authority(tmp_path / "ca")
    text = config(tmp_path, f'tcp = "192.0.2.77:{free_port()}"', *tls_lines(ca.issue("node1"), ca.certificate))
    (tmp_path / "early.toml").write_text(text)
    ran = run_to_end("--config", tmp_path / "early.toml")
    assert ran.returncode == 1
    assert "this machine does not have that address, or not yet" in ran.stderr


def test_without_tls_only_this_machine_is_served(tmp_path: Path) -> None:
    port = free_port()
    with clockgated(tmp_path, config(tmp_path, f'tcp = "127.0.0.1:{port}"')):
        asked = ctl("--address", f"127.0.0.1:{port}", "status")
        assert (asked.returncode, asked.stdout[:12]) == (0, "SYNCHRONIZED"), asked.stderr


def test_check_finds_certificates_that_would_not_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ca = authority(tmp_path / "ca")
    good, other = ca.issue("node1"), ca.issue("node2")
    file = tmp_path / "clockgated.toml"

    def said(files: PemFiles, ca_file: Path = ca.certificate) -> str:
        file.write_text(config(tmp_path, 'tcp = "127.0.0.1"', *tls_lines(files, ca_file)))
        code, told = main(["--check", "--config", str(file)]), capsys.readouterr()
        assert code == (0 if told.out == "ok\n" else 78)
        return told.out + told.err

    assert said(good) == "ok\n"
    assert f"{other.key}: is not the key of {good.certificate}" in said(PemFiles(good.certificate, other.key, good.ca))
    assert "none.pem: cannot be read: No such file" in said(good, tmp_path / "none.pem")
    assert "holds no certificate" in said(good, good.key)
    other.key.chmod(0o644)
    assert f"run `chmod 0600 {other.key}`" in said(other)
