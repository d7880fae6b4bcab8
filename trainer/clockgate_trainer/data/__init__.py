"""Training data: rows of a file to token batches in a reproducible order. Knows no rank's clock and no model."""
