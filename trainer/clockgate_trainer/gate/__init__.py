"""The gate: ask the local daemon, vote with all ranks, act on one decision."""
