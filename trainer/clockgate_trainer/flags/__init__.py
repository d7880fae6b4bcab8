"""Flags of the trainer: one table, one parser, one frozen value. Refuses what it does not know."""
