"""The engine: schedule, run, update."""
