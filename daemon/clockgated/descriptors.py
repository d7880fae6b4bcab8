"""How many files and connections this process may have open at once."""

import resource

# Connections to the API cost a descriptor and some 12 KiB each, and anyone on the node may open them; the usual soft
# limit of 1024 is within reach of one careless client. systemd's unit names the same number.
WANTED_DESCRIPTORS = 16_384


def raise_limit(wanted: int = WANTED_DESCRIPTORS) -> int:
    """Raise the soft limit to `wanted`, or as far as the hard limit allows; returns what is in force. Never lowers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        return target
    return soft
