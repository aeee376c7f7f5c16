"""The command line: fleetward and kubectl fleetward."""
