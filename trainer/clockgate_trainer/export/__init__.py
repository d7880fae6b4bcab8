"""From an adapter to a plain model: merging it into its base, and proof that both say the same."""
