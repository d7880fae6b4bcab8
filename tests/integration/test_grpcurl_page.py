"""Every command of docs/grpcurl.md, typed into a shell at a real daemon."""

import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from support.certificates import authority
from support.daemon import clockgated, toml
from support.ports import free_port
from support.tools import ROOT, require_tool

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

DEADLINE_EXCEEDED = 64 + 4


@dataclass(frozen=True)
class Command:
    """One line of the page; `failure` is what it is to say, None where it is to succeed."""

    line: str
    failure: str | None

    @property
    def is_stream(self) -> bool:
        return "-max-time" in self.line


def commands() -> list[Command]:
    text = (ROOT / "docs/grpcurl.md").read_text(encoding="utf-8")
    lines = "".join(re.findall(r"^```\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)).splitlines()
    split = [line.partition("  # ") for line in lines if line.startswith("grpcurl ")]
    return [Command(line, failure if mark else None) for line, mark, failure in split]


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("page")
    recording = folder / "recorded.jsonl"
    recording.write_text('{"after_s": 0, "bound_ns": 200000, "identity": "ntp:192.0.2.1", "stratum": 2}\n')
    ca, port = authority(folder), free_port()
    server = ca.issue("node1")
    ca.issue("client")
    api = (
        f'tcp = "127.0.0.1:{port}"\ntls_certificate = "{server.certificate}"\ntls_key = "{server.key}"\n'
        f'tls_client_ca = "{ca.certificate}"\ntls_clients = ["client"]\n'
    )
    text = toml(
        folder,
        clock='source = "recorded"\npoll_interval_s = 0.1\nsync_cycles = 1',
        extra=f'[recorded]\nfile = "{recording}"',
    ).replace("[api]\n", f"[api]\n{api}")
    with clockgated(folder, text) as daemon:
        yield {
            "SOCKET": str(daemon.socket),
            "ADMIN_SOCKET": str(daemon.admin_socket),
            "NODE": f"localhost:{port}",
            "TLS": "-cacert ca.pem -cert client.pem -key client.key",
            "PATH": f"{require_tool('grpcurl').parent}{os.pathsep}{os.environ['PATH']}",
            "FOLDER": str(folder),
        }


def typed(line: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", line], cwd=variables["FOLDER"], env=os.environ | variables, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip


def test_every_command_does_what_the_page_says(variables: dict[str, str]) -> None:
    known = commands()
    assert len(known) > 45
    wrong = []
    with ThreadPoolExecutor(6) as hands:
        typing = [hands.submit(typed, command.line, variables) for command in known]
    for command, done in zip(known, typing, strict=True):
        ran = done.result()
        if command.failure is not None:
            fits = ran.returncode != 0 and command.failure in ran.stderr
        else:
            fits = bool(ran.stdout.strip()) and ran.returncode == (DEADLINE_EXCEEDED if command.is_stream else 0)
        if not fits:
            wrong.append(f"{command.line}: {ran.returncode}: {ran.stdout[:200]} {ran.stderr[:300]}")
    assert not wrong, "\n".join(wrong)


def test_the_page_calls_every_method_that_reads(variables: dict[str, str]) -> None:
    text = "\n".join(command.line for command in commands())
    services = typed("grpcurl -plaintext -unix $SOCKET list", variables).stdout.split()
    for service in (one for one in services if "reflection" not in one):
        for method in typed(f"grpcurl -plaintext -unix $SOCKET list {service}", variables).stdout.split():
            assert "/".join(method.rsplit(".", 1)) in text, f"{method} is not on the page"
