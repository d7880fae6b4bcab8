"""Bounds and states: pure functions over frozen values. No file, no socket, no clock."""
