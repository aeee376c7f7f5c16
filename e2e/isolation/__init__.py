"""What a tenant can find out by its clock, and how fast data is gone: `make bench-isolation`."""
