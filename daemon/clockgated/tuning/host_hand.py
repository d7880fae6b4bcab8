"""The hand for the knobs of this host: files and links, in the network namespace of this process. See `hand`."""

from dataclasses import replace

from pyroute2.netlink.exceptions import NetlinkError

from clockgated.tuning.file_hand import FileHand
from clockgated.tuning.hand import Hand
from clockgated.tuning.identity import find
from clockgated.tuning.link_hand import LinkHand, present_links
from clockgated.tuning.model import Area, Knob
from clockgated.tuning.namespace import lives
from clockgated.tuning.outcome import Trouble, TroubleCode
from clockgated.tuning.roots import Roots

_OF_NAMESPACE = "net."


class HostHand:
    """See `hand.Hand`."""

    def __init__(self, roots: Roots | None = None) -> None:
        self._roots = roots or Roots()
        self._files = FileHand(self._roots)
        self._links = LinkHand(self._roots.sys)

    def read(self, knob: Knob) -> str | Trouble:
        """See Hand."""
        elsewhere = self._elsewhere(knob)
        return elsewhere if elsewhere is not None else self._for(knob).read(self._called_now(knob))

    def write(self, knob: Knob, value: str) -> Trouble | None:
        """See Hand."""
        elsewhere = self._elsewhere(knob)
        return elsewhere if elsewhere is not None else self._for(knob).write(self._called_now(knob), value)

    def _for(self, knob: Knob) -> Hand:
        return self._files if knob.area in (Area.SYSCTL, Area.SYSFS, Area.IRQ) else self._links

    def _called_now(self, knob: Knob) -> Knob:
        """A file of an interface is found below the interface's present name."""
        folder = f"class/net/{knob.link.name}/" if knob.link is not None else ""
        if knob.link is None or knob.area is not Area.SYSFS or not knob.key.startswith(folder):
            return knob
        try:
            found = find(knob.link, present_links(self._roots.sys))
        except (NetlinkError, OSError):
            return knob
        # One that is gone leaves no file behind, unless another has its name: that one must not be touched.
        name = "gone" if found is None else found.name
        return replace(knob, key=f"class/net/{name}/{knob.key.removeprefix(folder)}")

    def _elsewhere(self, knob: Knob) -> Trouble | None:
        """What stands in the way of a knob of another network namespace."""
        is_bound = knob.link is not None or (knob.area is Area.SYSCTL and knob.key.startswith(_OF_NAMESPACE))
        if not is_bound or knob.netns == self._roots.netns_inode:
            return None
        if lives(knob.netns, self._roots.proc):
            detail = f"it belongs to network namespace {knob.netns}: run clockgated there"
            return Trouble(TroubleCode.FAILED, detail)
        return Trouble(TroubleCode.GONE, f"its network namespace ({knob.netns}) is gone")
