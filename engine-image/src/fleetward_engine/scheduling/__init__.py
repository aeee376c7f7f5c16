"""In which order requests get the engine: queue disciplines, and the tokens of one step."""
