"""Certificate, key and CA of one side of mutual TLS: read from files, and told apart from what would never work.

No message and no repr holds what is in a file.
"""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_MOST_BYTES = 1 << 20
# X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED.
_BY_DATE = (9, 10)
_FLIGHTS = 4


class PemError(ValueError):
    """A file cannot be used. The message names the file, what is wrong with it and what is wanted."""


@dataclass(frozen=True)
class PemFiles:
    """Where they are: this side's certificate chain, its key, and the CA that the other side's certificate is from."""

    certificate: Path
    key: Path
    ca: Path


@dataclass(frozen=True)
class Pem:
    """What is in them; the key belongs to the certificate."""

    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)
    ca: bytes = field(repr=False)


def read_pem(files: PemFiles) -> Pem:
    """Read all three and see that they fit together. Raises PemError."""
    pem = Pem(_content(files.certificate), _content(files.key), _content(files.ca))
    _demand_pair(files, pem)
    _demand_ca(files.ca, pem.ca)
    return pem


def why_out_of_date(pem: Pem) -> str | None:
    """In OpenSSL's words, why this machine's clock says that the certificate is not valid today; None when it is.

    A handshake of the pair with itself, in memory, that trusts nothing but the certificate: Python reads no dates
    otherwise. Anything but the dates is another check's to find.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with _as_file(pem.certificate) as certificate, _as_file(pem.key) as key:
        server.load_cert_chain(certificate, key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(cadata=pem.certificate.decode("ascii", "replace"))
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True))
    # Each flight of messages wakes the other end once: a handshake has fewer than this.
    for end in ends * _FLIGHTS:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message if error.verify_code in _BY_DATE else None
        except ssl.SSLError:
            return None
    return None


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise PemError(f"{path}: cannot be read: {error.strerror}; wanted a PEM file") from None
    if len(data) > _MOST_BYTES:
        raise PemError(f"{path}: more than {_MOST_BYTES} bytes; wanted a PEM file")
    return data


def _demand_pair(files: PemFiles, pem: Pem) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def refuse_passphrase() -> str:
        # Without it OpenSSL asks on the terminal.
        raise PemError(f"{files.key}: is encrypted; wanted a key without a passphrase, readable by its owner alone")

    # By descriptor: the library only takes names, and a file may be another one by the time that it is opened again.
    with _as_file(pem.certificate) as certificate, _as_file(pem.key) as key:
        try:
            context.load_cert_chain(certificate, key, password=refuse_passphrase)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise PemError(f"{files.key}: is not the key of {files.certificate}; wanted a pair") from None
            raise PemError(f"{files.certificate} and {files.key}: no PEM certificate and PEM key") from None


def _demand_ca(path: Path, data: bytes) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=data.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise PemError(f"{path}: holds no certificate; wanted the CA's, as PEM") from None


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """A name under which `data` can be opened, by this process alone; it lies in memory."""
    descriptor = os.memfd_create("clockgate-pem")
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
