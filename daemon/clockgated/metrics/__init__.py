"""Metrics for Prometheus: what the daemon knows anyway, as numbers. A scrape measures nothing and waits for nothing."""
