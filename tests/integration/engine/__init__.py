"""The engine's real process under fire."""
