"""A pure, seeded simulation of clocks, networks and time daemons, whose true offset is known at every moment.

It feeds the daemon's own cycle, bounds, states and continuity; nothing of those is imitated here.
"""
