"""clockgatectl: a gRPC client for people and scripts.

Imports nothing of the daemon but version, units and errors, and for doctor and support-bundle, which also work with the
daemon dead, what looks at a host without it (`manage`, the records of `supervise`).
"""
