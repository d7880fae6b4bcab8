"""What is only looked up when somebody asks for the fabric: queueing, FEC, and the way to the peers."""

import logging
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

from clockgated.node.facts import Extras, LinkExtra, PeerPath
from clockgated.tuning import rtt
from clockgated.tuning.facts import Link
from clockgated.tuning.roots import Roots

_LOG = logging.getLogger(__name__)


def look_extras(roots: Roots, peers: Sequence[str]) -> Extras:
    """Ask the drivers of interfaces and the peers; takes 0.2 s, and up to 3 s with peers that do not answer."""
    paths = tuple(peer_path(peer, times_us) for peer, times_us in rtt.probe_all(peers).items())
    return Extras(links=_links(roots), peers=paths)


def peer_path(peer: str, times_us: Sequence[int] | None) -> PeerPath:
    """The figures of one peer. `times_us` are round trips in the order of sending; None: nothing could be sent."""
    if times_us is None:
        return PeerPath(peer)
    if not times_us:
        return PeerPath(peer, sent=rtt.PROBES)
    steps = [abs(after - before) for before, after in pairwise(times_us)]
    return PeerPath(
        peer,
        sent=rtt.PROBES,
        received=len(times_us),
        median_us=round(median(times_us)),
        p95_us=rtt.percentile_95(times_us),
        jitter_us=round(sum(steps) / len(steps)) if steps else None,
    )


def link_extra(link: Link) -> LinkExtra:
    """What is told of one interface, qdiscs without repetition: those of its queues are mostly the same."""
    fec = link.fec
    return LinkExtra(
        qdiscs=tuple(dict.fromkeys(one.kind for one in link.qdiscs)),
        fec_modes=fec.modes if fec else (),
        fec_corrected=fec.corrected if fec else None,
        fec_uncorrectable=fec.uncorrectable if fec else None,
    )


def _links(roots: Roots) -> Mapping[str, LinkExtra]:
    # pyroute2 costs 0.3 s of CPU to import, which a daemon that is never asked for its fabric need not pay.
    from clockgated.tuning.links import LinksError, read_links  # noqa: PLC0415

    try:
        return {link.name: link_extra(link) for link in read_links(roots)}
    except LinksError as error:
        _LOG.warning("node: %s", error)
        return {}
