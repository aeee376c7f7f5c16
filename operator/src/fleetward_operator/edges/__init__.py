"""Where decisions meet the world: the API server, members, clocks."""
