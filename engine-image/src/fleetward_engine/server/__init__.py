"""The engine's HTTP face: public API, health, metrics, and the thread the engine runs in."""
