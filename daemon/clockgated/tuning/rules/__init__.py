"""The rules, one table for each group: pure functions from the situation to changes, findings and refusals."""
