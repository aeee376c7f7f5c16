"""Tests of the figures' registry, record and report."""
