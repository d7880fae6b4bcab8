"""The plan of a run: memory, placement, batch and speed, worked out before any weight is read."""
