"""What the pages say exists, exists."""
