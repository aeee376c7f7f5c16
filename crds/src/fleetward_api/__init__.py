"""API types, CRDs and wire formats of Fleetward."""
