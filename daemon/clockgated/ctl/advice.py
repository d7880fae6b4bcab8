"""What a person does next about each reason of a reading. Keys are ReasonCode names without their prefix."""

_WAIT = "wait: this ends by itself within some measurements"
_SOURCES = "look at `chronyc -n sources -v` and at the network to the time servers"
_PTP = "look at ptp4l's log (`journalctl -u 'clockgate-ptp4l@*'`), the port of the switch and the domain number"
_RESTARTED = "look at `journalctl -u 'clockgate-*'` for why it ends; clockgated starts it again by itself"

NEXT_STEPS = {
    "STARTING": _WAIT,
    "SOURCE_UNREACHABLE": "start the time daemon (`systemctl status chrony`), or name its socket in [chrony] socket",
    "SOURCE_GARBLED": "check that [chrony] chronyc is chrony's program and of the same version as chronyd",
    "SOURCE_UNSYNCHRONISED": _SOURCES,
    "LOCAL_REFERENCE": "name a time server of the cluster in [ntp] servers; a node that follows itself has no bound",
    "ISLAND": "give the server above a reference to UTC if one is wanted; nodes on one island can be compared as it is",
    "NO_SELECTED_SOURCE": _SOURCES,
    "REFERENCE_STALE": _SOURCES,
    "REFERENCE_IN_FUTURE": "restart the time daemon: the clock was set back since its last update",
    "SKEW_TOO_LARGE": _WAIT,
    "STRATUM_OUT_OF_RANGE": _SOURCES,
    "BOUND_OVER_LIMIT": "poll nearer servers more often (maxpoll 4), or raise [clock] max_bound_ms if that is enough",
    "SETTLING": _WAIT,
    "HOLDOVER_HORIZON": _SOURCES,
    "CLOCK_STEPPED": "find out who set the clock: `clockgatectl epochs`, and other time daemons on this node",
    "SUSPENDED": "keep training nodes from sleeping; a paused virtual machine counts as well",
    "STEERING_CHANGED": "nothing if the time daemon was restarted on purpose; else look at its journal",
    "KERNEL_BOUND_NOT_TRUSTED": "run chronyd: other time daemons leave no bound that can be trusted",
    "KERNEL_UNSYNCHRONISED": "start chronyd and name a server; nobody keeps this clock",
    "LEAP_IN_PROGRESS": _WAIT,
    "DRILL": "end the drill with `clockgatectl drill clear`, or wait for its end",
    "PORT_NOT_SLAVE": _PTP,
    "GRANDMASTER_LOST": "look at the grandmaster and the switches between it and this node",
    "GRANDMASTER_CHANGED": _WAIT,
    "INGRESS_STALE": "look at the grandmaster, and whether the switch drops PTP messages (IGMP snooping, port filters)",
    "STEERING_DENIED": "run clockgated on the host, or give its container CAP_SYS_TIME",
    "PHC_FROZEN": 'reload the driver or update the firmware; [ptp] timestamping = "software" till then',
    "SERVO_PINNED": "look for a wrong grandmaster, or a second program that steers this clock",
    "UTC_OFFSET_INVALID": "make the grandmaster announce a valid UTC offset, or set [ptp] utc_offset_s",
    "TAI_SLIP": "look at the UTC offset of the grandmaster and of phc2sys: they differ by 37 s",
    "LEAP_PENDING": "nothing: the leap second is handled",
    "FOREIGN_ADJUSTER": "stop the other program that adjusts the clock",
    "TWO_GRANDMASTERS": "give one of the two another domain number, or switch it off",
    "WITNESS_DISAGREES": "believe neither until it is understood: compare with a second server and with the peers",
    "OTHER_TIME_DAEMON": "stop it, or set [clock] take_over = true to let clockgated replace it",
    "GRANDMASTER_CLASS": "look at the grandmaster's receiver: it announces a class that the configuration refuses",
    "GRANDMASTER_ACCURACY_UNKNOWN": "set the accuracy that the grandmaster announces; without it there is no UTC bound",
    "SERVO_SILENT": "look at `journalctl -u 'clockgate-phc2sys@*'`",
    "REFCLOCK_NOT_SELECTED": "look at `chronyc -n sources -v`: chronyd trusts other sources more than PTP",
    "LEFTOVER_FREQUENCY": "nothing: it was put back",
    "STEP_FORBIDDEN_BY_LEASE": "wait for the job's end, or break its lease: `clockgatectl leases`",
    "TIME_DAEMON_DOWN": _RESTARTED,
    "TIME_DAEMON_CRASH_LOOP": _RESTARTED,
    "TIME_DAEMON_MISSING": "install it (`apt-get install chrony linuxptp`)",
    "NOT_STEERED": "run clockgated on the host, or give its container CAP_SYS_TIME",
}

HARMLESS = frozenset({"ISLAND", "LEAP_PENDING", "LEFTOVER_FREQUENCY", "DRILL", "STARTING", "SETTLING"})
"""Reasons that stand beside a usable bound and need nobody to act."""
