"""Keeping the time daemons running: start, watch, back off, adopt, stop. What runs is decided elsewhere."""
