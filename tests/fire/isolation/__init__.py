"""Nothing of one tenant shows in what another is answered, nor after a purge in the engine."""
