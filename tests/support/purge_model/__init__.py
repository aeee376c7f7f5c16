"""A fleet under purges, small enough to visit every state of it."""
