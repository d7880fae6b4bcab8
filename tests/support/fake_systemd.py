"""A module `systemd` that speaks to NOTIFY_SOCKET as systemd-python does, which few machines have installed."""

from pathlib import Path

_DAEMON = """
import os
import socket


def notify(status):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(status.encode(), os.environ["NOTIFY_SOCKET"])
    return True
"""


def write_package(folder: Path) -> Path:
    """Write the package below `folder`; returns what to add to PYTHONPATH."""
    package = folder / "systemd"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "daemon.py").write_text(_DAEMON)
    return folder
