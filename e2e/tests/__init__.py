"""Real pods on the local cluster, which these tests take from an empty state."""
