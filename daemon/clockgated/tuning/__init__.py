"""Tuning of network and host: facts, rules, a plan with reasons and a hash, and how it is applied and undone."""
