"""Asking and telling drivers through the kernel's ethtool netlink family; a refusal keeps its errno.

One socket a conversation, used by one thread. The namespace is that of the calling thread when it is opened. A kernel
without the family (or a machine where it cannot be reached) answers everything with Unanswered.
"""

import errno
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from pyroute2.netlink import NLM_F_ACK, NLM_F_REQUEST
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.generic import GenericNetlinkSocket

from clockgated.tuning.ethtool_messages import CLASSES, FLAG_STATS, Command, plain, request

# It tells of every message that it decodes: dozens of lines for each interface.
logging.getLogger("pyroute2").setLevel(logging.INFO)

_NO_FAMILY = "the kernel has no ethtool netlink family"
_WITH_STATS = frozenset({Command.PAUSE_GET, Command.FEC_GET})


@dataclass(frozen=True)
class Unanswered:
    """Why there is no answer. `code` is an errno; EOPNOTSUPP and ENOENT mean that there is no such thing."""

    code: int
    detail: str

    @property
    def is_unsupported(self) -> bool:
        """Whether the driver or the kernel has no such thing, rather than refused this time."""
        return self.code in (errno.EOPNOTSUPP, errno.ENOENT, errno.ENOSYS, errno.EINVAL)


class Ethtool:
    """One conversation. Close it, or use it as a context."""

    def __init__(self) -> None:
        self._socket: Any = None
        self._why_not = Unanswered(errno.ENOENT, _NO_FAMILY)
        try:
            socket = GenericNetlinkSocket()
        except OSError as error:
            self._why_not = Unanswered(error.errno or errno.EIO, f"no netlink socket: {error.strerror}")
            return
        try:
            # The class given here decodes the family's answers; `_ask` sets the one that its request needs.
            socket.bind("ethtool", CLASSES[Command.RINGS_GET])
        except NetlinkError as error:
            socket.close()
            self._why_not = Unanswered(error.code, _NO_FAMILY)
            return
        self._socket = socket

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the conversation; harmless when done twice."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def news_group(self) -> int | None:
        """The multicast group in which the kernel tells of changed settings; None without the family."""
        group: int | None = None if self._socket is None else self._socket.mcast_groups.get("monitor")
        return group

    def get(self, command: Command, device: str) -> dict[str, Any] | Unanswered:
        """The driver's answer about interface `device`, by attribute name (see ethtool_messages.plain)."""
        flags = FLAG_STATS if command in _WITH_STATS else 0
        answers = self._ask(command, device, (), flags, NLM_F_REQUEST)
        if isinstance(answers, Unanswered):
            return answers
        return answers[0] if answers else Unanswered(errno.ENODATA, "the kernel answered nothing")

    def set(self, command: Command, device: str, values: Sequence[tuple[str, Any]]) -> Unanswered | None:
        """Set attributes of `device`; None when the kernel took them, which is no proof that the driver kept them."""
        answers = self._ask(command, device, values, 0, NLM_F_REQUEST | NLM_F_ACK)
        return answers if isinstance(answers, Unanswered) else None

    def _ask(
        self, command: Command, device: str, values: Sequence[tuple[str, Any]], header_flags: int, flags: int
    ) -> list[dict[str, Any]] | Unanswered:
        if self._socket is None:
            return self._why_not
        family: int = self._socket.prid
        self._socket.marshal.msg_map[family] = CLASSES[command]
        message = request(command, device, values, header_flags)
        try:
            answers = list(self._socket.nlm_request(message, msg_type=family, msg_flags=flags))
        except NetlinkError as error:
            return Unanswered(error.code, os.strerror(error.code))
        except OSError as error:
            return Unanswered(error.errno or errno.EIO, str(error))
        return [plain(answer) for answer in answers if "cmd" in answer.keys()]  # noqa: SIM118 - not a mapping
