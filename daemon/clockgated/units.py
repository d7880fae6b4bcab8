"""Conversions between the units of foreign tools (seconds, ppm) and ours (ns, ppb)."""

import math

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
NS_PER_US = 1_000
PPB_PER_PPM = 1_000


def ns_from_s(seconds: float) -> int:
    """Nanoseconds, rounded away from zero, so that a bound never shrinks by rounding."""
    scaled = seconds * NS_PER_S
    return math.ceil(scaled) if scaled >= 0 else math.floor(scaled)


def ppb_from_ppm(ppm: float) -> int:
    """Parts per billion, rounded away from zero."""
    scaled = ppm * PPB_PER_PPM
    return math.ceil(scaled) if scaled >= 0 else math.floor(scaled)
