"""What a key of the configuration may hold: each kind says what is wanted and reads one value. Pure."""

import ipaddress
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

SOCKET_PATH_LIMIT_BYTES = 107  # sockaddr_un.sun_path is 108 bytes, one of them the final NUL
API_PORT = 9776
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True)
class TcpAddress:
    """An address of this machine and a port of it, to listen on."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return ipaddress.ip_address(self.host).is_loopback

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Kind(Protocol):
    """What a key may hold."""

    @property
    def wanted(self) -> str:
        """What is wanted, for a person."""
        ...

    def read(self, value: object) -> Any:
        """The value; ValueError when it is not of this kind."""
        ...


@dataclass(frozen=True)
class Number:
    """A finite number within limits."""

    low: float
    high: float

    @property
    def wanted(self) -> str:
        """See Kind."""
        return f"a number from {self.low:g} to {self.high:g}"

    def read(self, value: object) -> float:
        """See Kind."""
        # bool is an int to Python and never a quantity to a person.
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError
        # False for nan too; no conversion, since an int can be too large for a float.
        if not self.low <= value <= self.high:
            raise ValueError
        return float(value)


@dataclass(frozen=True)
class Whole:
    """A whole number within limits."""

    low: int
    high: int

    @property
    def wanted(self) -> str:
        """See Kind."""
        return f"a whole number from {self.low} to {self.high}"

    def read(self, value: object) -> int:
        """See Kind."""
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            raise ValueError
        return value


@dataclass(frozen=True)
class Choice:
    """One of some texts."""

    known: tuple[str, ...]

    @property
    def wanted(self) -> str:
        """See Kind."""
        return "one of " + ", ".join(f'"{name}"' for name in self.known)

    def read(self, value: object) -> str:
        """See Kind."""
        if not isinstance(value, str) or value not in self.known:
            raise ValueError
        return value


@dataclass(frozen=True)
class Member:
    """A text that names a member of an enumeration."""

    of: type[StrEnum]

    @property
    def wanted(self) -> str:
        """See Kind."""
        return "one of " + ", ".join(f'"{one}"' for one in self.of)

    def read(self, value: object) -> StrEnum:
        """See Kind."""
        if not isinstance(value, str):
            raise ValueError
        return self.of(value)


@dataclass(frozen=True)
class Switch:
    """A truth value."""

    wanted: str = "true or false"

    def read(self, value: object) -> bool:
        """See Kind."""
        if not isinstance(value, bool):
            raise ValueError
        return value


@dataclass(frozen=True)
class Text:
    """A text that is not empty."""

    wanted: str

    def read(self, value: object) -> str:
        """See Kind."""
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError
        return value


@dataclass(frozen=True)
class OptionalPath:
    """A path; empty is none."""

    wanted: str = 'a path, or "" for none'

    def read(self, value: object) -> Path | None:
        """See Kind."""
        if not isinstance(value, str) or "\0" in value:
            raise ValueError
        return Path(value) if value else None


@dataclass(frozen=True)
class SocketPath:
    """Where a unix socket can be bound."""

    wanted: str = f"an absolute path of at most {SOCKET_PATH_LIMIT_BYTES} bytes"

    def read(self, value: object) -> Path:
        """See Kind."""
        if not isinstance(value, str) or "\0" in value or not value.startswith("/") or value.endswith("/"):
            raise ValueError
        if len(value.encode(errors="surrogateescape")) > SOCKET_PATH_LIMIT_BYTES:
            raise ValueError
        return Path(value)


@dataclass(frozen=True)
class FolderPath:
    """An absolute path of a folder, which need not be there yet."""

    wanted: str = "an absolute path"

    def read(self, value: object) -> Path:
        """See Kind."""
        if not isinstance(value, str) or "\0" in value or not value.startswith("/"):
            raise ValueError
        return Path(value)


@dataclass(frozen=True)
class Texts:
    """A list of texts that are not empty."""

    wanted: str

    def read(self, value: object) -> tuple[str, ...]:
        """See Kind."""
        if not isinstance(value, list) or not all(isinstance(one, str) and one and "\0" not in one for one in value):
            raise ValueError
        return tuple(value)


@dataclass(frozen=True)
class OptionalTcpAddress:
    """Where to listen for TCP; empty is nowhere. An IP address: a name may come to mean another machine."""

    usual_port: int = API_PORT

    @property
    def wanted(self) -> str:
        """See Kind."""
        return f'an IP address of this machine, or one with a port (else {self.usual_port}), or "" for none'

    def read(self, value: object) -> TcpAddress | None:
        """See Kind."""
        if not isinstance(value, str):
            raise ValueError
        if not value:
            return None
        split = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::([0-9]{1,5}))?|([0-9.]+)(?::([0-9]{1,5}))?", value)
        if split is None:
            raise ValueError
        port = int(split[2] or split[4] or self.usual_port)
        if not 1 <= port <= 65535:
            raise ValueError
        return TcpAddress(str(ipaddress.ip_address(split[1] or split[3])), port)


def fits_in_64_bits(value: object) -> bool:
    """Whether all whole numbers have 64 bits, which TOML demands: Python cannot even write out some longer ones."""
    if isinstance(value, dict):
        return all(map(fits_in_64_bits, value.values()))
    if isinstance(value, list):
        return all(map(fits_in_64_bits, value))
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def shown(value: object) -> str:
    """The value much as the file has it, cut short."""
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, str):
        text = f'"{value}"'
    else:
        text = str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
