"""Deleting a scope's cache across the fleet, as a pure state machine."""
