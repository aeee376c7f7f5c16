"""Unit tests of `make chaos`."""
