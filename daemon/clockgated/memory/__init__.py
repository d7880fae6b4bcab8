"""What the daemon remembers across its own restart: the last reading, and the journal of disruptions."""
