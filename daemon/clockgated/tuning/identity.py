"""Finding an interface again that may have been renamed, moved to another index, or replaced by another. Pure."""

from collections.abc import Sequence

from clockgated.tuning.model import LinkId


def find(wanted: LinkId, present: Sequence[LinkId]) -> LinkId | None:
    """`wanted` as it is called now; None when it is gone, or when more than one could be it.

    The permanent address and the driver tell; a link without such an address is known by its index and driver, which
    hold within one boot and namespace.
    """
    if wanted.permanent_mac is not None:
        found = [one for one in present if (one.permanent_mac, one.driver) == (wanted.permanent_mac, wanted.driver)]
        # Functions of one card may share an address.
        same_index = [one for one in found if one.ifindex == wanted.ifindex]
        found = same_index if len(found) > 1 else found
    else:
        found = [one for one in present if (one.ifindex, one.driver) == (wanted.ifindex, wanted.driver)]
        found = [one for one in found if one.permanent_mac is None]
    return found[0] if len(found) == 1 else None
