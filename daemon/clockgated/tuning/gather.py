"""Gathers all facts of this node and this network namespace. Changes nothing; takes some tens of milliseconds."""

from clockgated import host
from clockgated.tuning.facts import Facts, PathTime
from clockgated.tuning.host_facts import NODE_WIDE, SYSCTLS, device_names, read_host, read_irqs, read_sysctls
from clockgated.tuning.links import read_links
from clockgated.tuning.owners import read_owners
from clockgated.tuning.profile import Profile
from clockgated.tuning.roots import Roots


def gather(roots: Roots, path: PathTime | None, profile: Profile | None) -> Facts:
    """The facts, with the round-trip time that the caller measured or was told. Raises LinksError.

    `profile` names further keys and links to look at; None where it is still to be chosen.
    """
    as_of_boot_ns = host.boot_ns()
    links = read_links(roots, () if profile is None else profile.links)
    sysctls = read_sysctls(roots, {*SYSCTLS, *(() if profile is None else profile.sysctl)})
    return Facts(
        netns=roots.netns_inode,
        boot_id=roots.boot_id,
        as_of_boot_ns=as_of_boot_ns,
        is_initial_netns=any(key in sysctls for key in NODE_WIDE),
        links=links,
        sysctls=sysctls,
        irqs=read_irqs(roots, {link.name: device_names(roots, link.name) for link in links}),
        host=read_host(roots),
        owners=read_owners(roots),
        path=path,
    )
