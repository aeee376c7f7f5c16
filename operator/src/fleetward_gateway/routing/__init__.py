"""Which engine a request goes to: filter, score, pick. Plain values in, no I/O."""
