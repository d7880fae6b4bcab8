"""`clockgate-train lint`: what is wrong with data files, told by file and line before any training. Trains nothing."""
