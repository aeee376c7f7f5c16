"""The operator against a real API server."""
