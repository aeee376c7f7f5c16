"""Unit and property tests of `fleetward_api`."""
