"""Measured figures: what each promise is, how it is measured, and what came out."""
