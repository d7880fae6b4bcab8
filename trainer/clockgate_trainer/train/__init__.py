"""Training: one rank's model, loop and main. The loop is our own and decides nothing about clocks itself."""
