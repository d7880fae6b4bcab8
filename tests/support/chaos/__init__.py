"""Faults on purpose against real daemons and real ranks: what is done, when, and how each run must end."""
