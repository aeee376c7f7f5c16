"""What an engine's memory is for: the device's or container's, shared out once at start."""
