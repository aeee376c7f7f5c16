"""Tests of the engine's servers."""
