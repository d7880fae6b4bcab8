"""clockgatectl: a gRPC client for people and scripts. Imports nothing of the daemon but version, units and errors."""
