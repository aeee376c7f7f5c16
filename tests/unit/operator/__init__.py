"""The operator, part by part."""
