"""What a client sent is found again by that client alone."""
