"""How good an adapter is: loss over rows that it never saw, multiple choice, and other people's ratings."""
