"""How the interfaces of this host stamp packets, kept through a change. See `stamps`."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from pyroute2.netlink.exceptions import NetlinkError

from clockgated.tuning.facts import StampConfig
from clockgated.tuning.hwtstamp import read_stamp_config, write_stamp_config
from clockgated.tuning.identity import find
from clockgated.tuning.journal import LinkStamps
from clockgated.tuning.link_hand import present_links
from clockgated.tuning.model import LinkId

_LOG = logging.getLogger(__name__)


class HostStamps:
    """See Stamps: the interfaces of this process's network namespace."""

    def __init__(self, sys: Path = Path("/sys")) -> None:
        self._sys = sys

    def read(self, links: Iterable[LinkId]) -> tuple[LinkStamps, ...]:
        """See Stamps."""
        found = ((link, self._now(link)) for link in dict.fromkeys(links))
        return tuple(LinkStamps(link, now.tx_type, now.rx_filter) for link, now in found if now is not None)

    def restore(self, before: Sequence[LinkStamps]) -> None:
        """See Stamps."""
        for one in before:
            wanted, now = StampConfig(one.tx_type, one.rx_filter), self._now(one.link)
            name = self._name(one.link)
            if now is None or now == wanted or name is None:
                continue
            error = write_stamp_config(name, wanted)
            is_back = error is None and read_stamp_config(name) == wanted
            _LOG.log(
                logging.WARNING if is_back else logging.ERROR,
                "tuning: %s stamped packets as %s after the change, before it as %s: %s",
                name, now, wanted, "restored" if is_back else f"not restored: {error or 'the driver chose otherwise'}",
            )  # fmt: skip

    def _now(self, link: LinkId) -> StampConfig | None:
        name = self._name(link)
        return None if name is None else read_stamp_config(name)

    def _name(self, link: LinkId) -> str | None:
        try:
            found = find(link, present_links(self._sys))
        except (NetlinkError, OSError):
            return None
        return None if found is None else found.name
