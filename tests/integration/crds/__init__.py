"""The printed CRDs on a real API server."""
