"""PCIe links from a device up to the root: what each runs at and what both of its ends could. Reads sysfs."""

import re
from pathlib import Path

from clockgated.tuning.facts import PcieHop
from clockgated.tuning.roots import number_of, text_of


def hops_above(device: Path, sys: Path) -> tuple[PcieHop, ...]:
    """One hop for each device on the way up that has a link, the nearest first; none when `device` is not on PCIe.

    What is possible is the smaller of both ends: a fast card below a slow port is no fault.
    """
    try:
        here, top = device.resolve(strict=True), sys.resolve()
    except OSError:
        return ()
    folders = [folder for folder in (here, *here.parents) if folder.is_relative_to(top)]
    linked = [folder for folder in folders if (folder / "max_link_speed").is_file()]
    hops = []
    for place, child in enumerate(linked):
        ends = linked[place : place + 2]
        hops.append(
            PcieHop(
                device=child.name,
                speed_gts=speed_gts(text_of(child / "current_link_speed")),
                width=number_of(child / "current_link_width"),
                possible_speed_gts=min(
                    filter(None, (speed_gts(text_of(e / "max_link_speed")) for e in ends)), default=None
                ),
                possible_width=min(filter(None, (number_of(e / "max_link_width") for e in ends)), default=None),
            )
        )
    # The root port's own link leads nowhere further up: with a child it was judged as the child's parent.
    return tuple(hops[:-1] if len(hops) > 1 else hops)


def speed_gts(text: str | None) -> float | None:
    """The text "16.0 GT/s PCIe" as a number; None for "Unknown" and for what is no speed."""
    found = re.match(r"(\d+(?:\.\d+)?) ?GT/s", text or "")
    return float(found[1]) if found else None
