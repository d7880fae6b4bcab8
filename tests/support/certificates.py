"""Certificates of a small CA, made by openssl: for servers on this machine, and for clients with a name."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from clockgate.pem import PemFiles
from support.tools import require_tool


@dataclass(frozen=True)
class Authority:
    """A CA below `folder`, whose certificate is `certificate`."""

    folder: Path

    @property
    def certificate(self) -> Path:
        """What the other side needs to know."""
        return self.folder / "ca.pem"

    def issue(self, name: str, *, of: str = "DNS:localhost,IP:127.0.0.1", into: Path | None = None) -> PemFiles:
        """A certificate for common name `name` and the names `of`, and its key; `into` another folder than the CA's."""
        folder = into or self.folder
        folder.mkdir(exist_ok=True)
        certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
        _openssl(
            "req", "-x509", *_KEY, "-keyout", str(key), "-out", str(certificate), "-subj", f"/CN={name}",
            "-addext", f"subjectAltName={of}", "-days", "2",
            "-CA", str(self.certificate), "-CAkey", str(self.folder / "ca.key"),
        )  # fmt: skip
        key.chmod(0o600)
        return PemFiles(certificate, key, self.certificate)

    def issue_expired(self, name: str) -> PemFiles:
        """A certificate for common name `name`, and its key, that has expired a day ago."""
        certificate, key, request = (self.folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
        _openssl("req", "-new", *_KEY, "-keyout", str(key), "-out", str(request), "-subj", f"/CN={name}")
        _openssl(
            "x509", "-req", "-in", str(request), "-out", str(certificate), "-days", "-1",
            "-CA", str(self.certificate), "-CAkey", str(self.folder / "ca.key"), "-CAcreateserial",
        )  # fmt: skip
        key.chmod(0o600)
        return PemFiles(certificate, key, self.certificate)


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def authority(folder: Path) -> Authority:
    """A new CA in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Authority(folder)
    _openssl(
        "req", "-x509", *_KEY, "-keyout", str(folder / "ca.key"), "-out", str(made.certificate),
        "-subj", f"/CN=CA of {folder.name}", "-days", "2",
    )  # fmt: skip
    return made


def _openssl(*words: str) -> None:
    line = [str(require_tool("openssl")), *words]
    done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
