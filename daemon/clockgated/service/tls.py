"""The certificates of the TCP server, and their change while it serves. Knows nothing of the API behind it.

grpc asks for a configuration at each new connection; those that are open keep theirs. Files that do not fit together
(a certificate that is new already and its key not yet, a truncated copy) change nothing: the last good ones stay.
"""

import logging
import os
import stat
import threading
from pathlib import Path

import grpc
from clockgate.pem import Pem, PemError, PemFiles, read_pem, why_out_of_date

from clockgated.errors import ConfigError

_LOOK_INTERVAL_S = 1.0
_LOG = logging.getLogger(__name__)

_Signature = tuple[tuple[int, int, int] | None, ...]


def read_certificates(files: PemFiles) -> Pem:
    """What is in `files`. Raises ConfigError, which names file and next step, when it cannot be served with."""
    try:
        _demand_private(files.key)
        return read_pem(files)
    except PemError as error:
        raise ConfigError(f"[api] TLS: {error}") from None


class Certificates:
    """The newest good content of `files`, looked for once a second and at each new connection until `close`.

    Raises ConfigError when there is none to begin with.
    """

    def __init__(self, files: PemFiles, *, look_interval_s: float = _LOOK_INTERVAL_S) -> None:
        self._files = files
        self._look_interval_s = look_interval_s
        self._lock = threading.Lock()
        self._seen = _signature(files)
        self._pem = read_certificates(files)
        self._served = self._pem
        self._tell_dates()
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="certificates", daemon=True).start()

    def credentials(self) -> grpc.ServerCredentials:
        """For one port: every client has to show a certificate of the CA."""
        credentials: grpc.ServerCredentials = grpc.dynamic_ssl_server_credentials(
            _configuration(self._pem),
            self._fetch,  # type: ignore[arg-type]  # the stubs leave out that None means "as before"
            require_client_authentication=True,
        )
        return credentials

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(self._look_interval_s):
            with self._lock:
                self._look()

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """For grpc, at each new connection: other certificates than it has, or None. Never raises."""
        with self._lock:
            self._look()
            if self._served is self._pem:
                return None
            self._served = self._pem
            return _configuration(self._pem)

    def _look(self) -> None:
        now = _signature(self._files)
        if now == self._seen:
            return
        self._seen = now
        try:
            self._pem = read_certificates(self._files)
        except ConfigError as error:
            _LOG.warning("%s; the certificates in use stay until the files are right", error)
            return
        _LOG.info("new certificates are in use for new connections: %s", self._files.certificate)
        self._tell_dates()

    def _tell_dates(self) -> None:
        """No reason to refuse: until a node's clock is set it may be the clock that is wrong."""
        why = why_out_of_date(self._pem)
        if why is not None:
            _LOG.warning(
                "%s: %s, by this node's clock; clients will refuse it: renew it, or see to the clock",
                self._files.certificate,
                why,
            )


def _configuration(pem: Pem) -> grpc.ServerCertificateConfiguration:
    configuration: grpc.ServerCertificateConfiguration = grpc.ssl_server_certificate_configuration(
        [(pem.key, pem.certificate)], root_certificates=pem.ca
    )
    return configuration


def _signature(files: PemFiles) -> _Signature:
    """What changes with the content, without reading it: kept in place or replaced, a file has another of these."""
    return tuple(_one_signature(path) for path in (files.certificate, files.key, files.ca))


def _one_signature(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _demand_private(key: Path) -> None:
    """Raise PemError when others than owner and group may read the key, or more than the owner may change it."""
    try:
        found = key.stat()
    except OSError:
        return  # whoever reads it will tell
    if found.st_mode & 0o027:
        mode = stat.S_IMODE(found.st_mode)
        raise PemError(
            f"{key}: mode {mode:04o} lets others read or change the key; wanted 0600, or 0640 for a group of its own: "
            f"run `chmod 0600 {key}`"
        )
    if found.st_uid not in (0, os.geteuid()):
        raise PemError(f"{key}: belongs to user {found.st_uid}; wanted root, or who runs clockgated")
